"""Who has the floor in a talk, and what is open between the two sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MAX_IDLE_PROMPTS: Final = 1
"""So often the agent asks whether a silent caller is still there; then it says goodbye."""
ConversationEnd = Literal["agent_ended", "customer_silent", "error"]
"""Why an agent ends a call."""


@dataclass
class ConversationState:
    """As the conversation knows it."""

    caller: bool = False
    """The caller speaks, or has a turn open."""
    agent: bool = False
    """The agent is audible."""
    paused_ms: float | None = None
    """Since when playout waits for the caller's words."""
    unanswered: bool = False
    """The last answer was cut before a word of it was heard: what the caller says next is more of the same turn."""
    cut: bool = False
    """The caller interrupted the agent and has not been understood since."""
    leaving: ConversationEnd | None = None
    """The agent has said goodbye, for this reason."""
    owed: bool = False
    """The caller entered digits during a protected message: they are answered after it."""
    dialled: bool = False
    """The last turn was digits."""
    silences: int = 0
    """How often in a row the agent has asked whether the caller is still there."""

    def leave(self, *, failed: bool) -> None:
        """The agent has said goodbye. `failed`: because it cannot answer."""
        by_itself: ConversationEnd = "customer_silent" if self.silences > MAX_IDLE_PROMPTS else "agent_ended"
        self.leaving = "error" if failed else by_itself

    def heard_words(self, *, dialled: bool) -> None:
        """The caller was understood, or dialled."""
        self.unanswered = self.cut = False
        self.leaving = None
        self.silences, self.dialled = 0, dialled
