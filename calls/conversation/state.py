"""State of a conversation: what the user does at this moment, and what is pending between the user and the agent."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

MAX_IDLE_PROMPTS: Final = 1
"""Times that the agent asks whether a silent user is still there; after the last one it says goodbye."""
ConversationEnd = Literal["agent_ended", "customer_silent", "error"]
"""Why the agent ends a call."""


class UserState(Enum):
    """What the user does. "Understood" means that words of the user were recognized, or that keys were dialled.

    SILENT          -- speech started -->  SPEAKING
    SPEAKING        -- speech ended ---->  SILENT
    SPEAKING        -- barge-in -------->  INTERRUPTING
    INTERRUPTING    -- understood ------>  SPEAKING
    INTERRUPTING    -- speech ended ---->  NOT_UNDERSTOOD
    NOT_UNDERSTOOD  -- speech started -->  INTERRUPTING
    NOT_UNDERSTOOD  -- understood, or asked to repeat -->  SILENT
    """

    SILENT = auto()
    SPEAKING = auto()
    """The user speaks, or pauses within an open turn."""
    INTERRUPTING = auto()
    """The user speaks, has interrupted the agent and has not been understood since."""
    NOT_UNDERSTOOD = auto()
    """The user is silent, has interrupted the agent and has not been understood since."""


class LastTurn(Enum):
    """The last turn of the user, as it decides what the next words are.

    COMPLETE  -- response cut before a word of it was heard ----->  OPEN
    OPEN      -- a later response cut after words were heard ---->  COMPLETE
    any       -- words of the user -->  COMPLETE        any  -- DTMF entry -->  DTMF
    """

    COMPLETE = auto()
    OPEN = auto()
    """Nothing of its response was heard: further words continue it."""
    DTMF = auto()
    """Keys were dialled: further words are a turn of their own, whatever was heard."""


@dataclass
class ConversationState:
    """What the conversation remembers from one event to the next. Each method is the transition of one event."""

    user: UserState = UserState.SILENT
    agent_is_audible: bool = False
    """Sound of the agent is sent, or waits in a paused playout."""
    playout_paused_ms: float | None = None
    """Since when playout waits to see whether the user's sound is an interruption."""
    last_turn: LastTurn = LastTurn.COMPLETE
    end_requested: ConversationEnd | None = None
    """The agent has said goodbye, for this reason: the call ends unless the user speaks."""
    response_owed: bool = False
    """Input came during an uninterruptible message: it is answered after that."""
    idle_prompts: int = 0
    """Times in a row that the agent has asked whether the user is still there, or said goodbye for it."""

    @property
    def user_is_speaking(self) -> bool:
        """True while the user's turn is open."""
        return self.user in (UserState.SPEAKING, UserState.INTERRUPTING)

    def user_started_speaking(self) -> None:
        """A turn of the user was opened."""
        match self.user:
            case UserState.SILENT:
                self.user = UserState.SPEAKING
            case UserState.NOT_UNDERSTOOD:
                self.user = UserState.INTERRUPTING

    def user_stopped_speaking(self) -> None:
        """The user's turn was ended or dropped."""
        match self.user:
            case UserState.SPEAKING:
                self.user = UserState.SILENT
            case UserState.INTERRUPTING:
                self.user = UserState.NOT_UNDERSTOOD

    def user_interrupted_agent(self, *, heard: bool) -> None:
        """A barge-in has cut a response. `heard`: words of it were heard before."""
        self.user = UserState.INTERRUPTING if self.user_is_speaking else UserState.NOT_UNDERSTOOD
        if self.last_turn is not LastTurn.DTMF:
            self.last_turn = LastTurn.COMPLETE if heard else LastTurn.OPEN

    def user_understood(self, *, dtmf: bool) -> None:
        """Words of the user were recognized, or a DTMF entry is complete: the conversation goes on."""
        self._interruption_settled()
        self.last_turn = LastTurn.DTMF if dtmf else LastTurn.COMPLETE
        self.end_requested = None
        self.idle_prompts = 0

    def user_prompted(self) -> bool:
        """The agent asks whether the user is still there. Returns True if it says goodbye instead."""
        self.idle_prompts += 1
        return self.idle_prompts > MAX_IDLE_PROMPTS

    def user_asked_to_repeat(self) -> None:
        """The agent says that it has not understood."""
        self._interruption_settled()

    def _interruption_settled(self) -> None:
        match self.user:
            case UserState.INTERRUPTING:
                self.user = UserState.SPEAKING
            case UserState.NOT_UNDERSTOOD:
                self.user = UserState.SILENT

    def playout_flushed(self, at_ms: float) -> float:
        """A barge-in has flushed the playout at `at_ms`. Returns when the agent was last heard, in ms: playout may have
        been paused before."""
        paused_ms, self.playout_paused_ms = self.playout_paused_ms, None
        return at_ms if paused_ms is None else paused_ms

    def agent_said_goodbye(self, *, failed: bool) -> None:
        """The agent's last words have been heard. `failed`: it ends the call because its language model fails."""
        by_itself: ConversationEnd = "customer_silent" if self.idle_prompts > MAX_IDLE_PROMPTS else "agent_ended"
        self.end_requested = "error" if failed else by_itself
