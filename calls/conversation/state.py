"""State of a conversation: what the user does, and what is pending between the user and the agent."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from storage.calls.transfers import TransferOrder

MAX_IDLE_PROMPTS: Final = 1
"""Prompts of the agent to a silent user; after the last one it says goodbye."""
ConversationEnd = Literal["agent_ended", "customer_silent", "error"]
"""Why the agent ends a call."""


class UserState(Enum):
    """What the user does. "Understood" means that words of the user were recognized, or that DTMF was entered.

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
    """The last turn of the user: whether the next words continue it.

    COMPLETE  -- response cut before a word of it was played ----->  OPEN
    OPEN      -- a later response cut after words were played ---->  COMPLETE
    any       -- words of the user -->  COMPLETE        any  -- DTMF entry -->  DTMF
    """

    COMPLETE = auto()
    OPEN = auto()
    """Nothing of its response was played: further words continue it."""
    DTMF = auto()
    """A DTMF entry: further words are always a turn of their own."""


@dataclass
class ConversationState:
    """State between two events. Each method is the transition of one event."""

    user: UserState = UserState.SILENT
    is_agent_audible: bool = False
    """Audio of the agent is sent, or waits in a paused playout."""
    playout_paused_ms: float | None = None
    """Since when playout is paused, until the user's audio proves to be an interruption or not."""
    last_turn: LastTurn = LastTurn.COMPLETE
    end_requested: ConversationEnd | None = None
    """Set once the agent has said goodbye: the call ends for this reason unless the user speaks."""
    response_pending: bool = False
    """Input came during an uninterruptible message: it is answered after the message."""
    pending_transfer: TransferOrder | None = None
    """A client has asked for this transfer, which follows the present response."""
    transferring: bool = False
    """The call is being transferred: the agent is silent."""
    held_by_client: bool = False
    """A client has put the caller on hold: neither side is heard, and the agent does not end the call."""
    idle_prompts: int = 0
    """Consecutive idle prompts of the agent, its goodbye included."""

    @property
    def is_user_speaking(self) -> bool:
        """True while the user's turn is open."""
        return self.user in (UserState.SPEAKING, UserState.INTERRUPTING)

    def on_speech_started(self) -> None:
        """The user's turn was opened."""
        match self.user:
            case UserState.SILENT:
                self.user = UserState.SPEAKING
            case UserState.NOT_UNDERSTOOD:
                self.user = UserState.INTERRUPTING

    def on_speech_ended(self) -> None:
        """The user's turn was ended or dropped."""
        match self.user:
            case UserState.SPEAKING:
                self.user = UserState.SILENT
            case UserState.INTERRUPTING:
                self.user = UserState.NOT_UNDERSTOOD

    def on_barge_in(self, *, played: bool) -> None:
        """A barge-in has cut a response. `played`: words of it were played before."""
        self.user = UserState.INTERRUPTING if self.is_user_speaking else UserState.NOT_UNDERSTOOD
        if self.last_turn is not LastTurn.DTMF:
            self.last_turn = LastTurn.COMPLETE if played else LastTurn.OPEN

    def on_user_input(self, *, dtmf: bool) -> None:
        """Words of the user were recognized, or a DTMF entry is complete."""
        self._end_interruption()
        self.last_turn = LastTurn.DTMF if dtmf else LastTurn.COMPLETE
        self.end_requested = None
        self.idle_prompts = 0

    def on_user_idle(self) -> bool:
        """The user is idle. Returns True if the agent says goodbye instead of a prompt."""
        self.idle_prompts += 1
        return self.idle_prompts > MAX_IDLE_PROMPTS

    def on_repeat_prompt(self) -> None:
        """The agent asks the user to repeat."""
        self._end_interruption()

    def _end_interruption(self) -> None:
        match self.user:
            case UserState.INTERRUPTING:
                self.user = UserState.SPEAKING
            case UserState.NOT_UNDERSTOOD:
                self.user = UserState.SILENT

    def on_playout_flushed(self, at_ms: float) -> float:
        """A barge-in has flushed the playout at `at_ms`. Returns the time of the agent's last audio, in ms: playout may
        have been paused before."""
        paused_ms, self.playout_paused_ms = self.playout_paused_ms, None
        return at_ms if paused_ms is None else paused_ms

    def on_goodbye(self, *, failed: bool) -> None:
        """The agent's last words were played. `failed`: it ends the call because its language model fails."""
        reason: ConversationEnd = "customer_silent" if self.idle_prompts > MAX_IDLE_PROMPTS else "agent_ended"
        self.end_requested = "error" if failed else reason
