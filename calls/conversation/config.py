"""The configuration of the agent for one conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ConversationConfig:
    """Texts have their placeholders filled. `greeting` None: the language model writes the first message, if the agent
    speaks first; a function returns the parts of a greeting whose end is not known yet. `user_idle_ms`: silence of both
    sides after which the agent prompts the user; 0 never. `announcement`: said to its end before anything else, whoever
    speaks first."""

    system_prompt: str
    greeting: str | Callable[[], AsyncGenerator[str, None]] | None = None
    speaks_first: bool = False
    first_message_delay_ms: int = 0
    first_message_uninterruptible: bool = False
    language: str | None = None
    user_idle_ms: int = 0
    announcement: str | None = None
