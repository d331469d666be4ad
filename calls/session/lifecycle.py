"""The lifecycle of a call: its states, when it was answered and ended, and why it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import Enum, auto
from typing import Final

from config.clock import utc_now
from storage.calls.calls import EndedReason


class SessionState(Enum):
    """The state of a call.

    QUEUED -> RINGING -> ANSWERED -> ACTIVE
    any of these -- end --> ENDING -> ENDED
    """

    QUEUED = auto()
    """Outbound: the INVITE is not sent yet."""
    RINGING = auto()
    """The INVITE was received or sent, and is not answered."""
    ANSWERED = auto()
    """Answered; audio is not negotiated yet."""
    ACTIVE = auto()
    """Audio flows, and the agent talks with the caller."""
    ENDING = auto()
    """The reason of the end is known; the leg is being hung up, and the end stored."""
    ENDED = auto()


_NEXT: Final[Mapping[SessionState, Collection[SessionState]]] = {
    SessionState.QUEUED: (SessionState.RINGING, SessionState.ENDING),
    SessionState.RINGING: (SessionState.ANSWERED, SessionState.ENDING),
    SessionState.ANSWERED: (SessionState.ACTIVE, SessionState.ENDING),
    SessionState.ACTIVE: (SessionState.ENDING,),
    SessionState.ENDING: (SessionState.ENDED,),
    SessionState.ENDED: (),
}


class CallLifecycle:
    """The state of one call, for the event loop. `ending` is done once the call is to end; its result is the reason.
    Inbound calls begin as RINGING, queued outbound calls as QUEUED."""

    def __init__(self, state: SessionState = SessionState.RINGING) -> None:
        self._state = state
        self.ending: asyncio.Future[EndedReason] = asyncio.get_running_loop().create_future()
        self.answered_at: datetime | None = None
        self.ended_at: datetime | None = None
        self._answered_s: float | None = None  # on the clock of the event loop

    @property
    def state(self) -> SessionState:
        """The current state."""
        return self._state

    @property
    def is_ending(self) -> bool:
        """True once the call is to end."""
        return self.ending.done()

    @property
    def is_active(self) -> bool:
        """True while the agent or another party talks with the caller."""
        return self._state is SessionState.ACTIVE

    @property
    def is_answered(self) -> bool:
        """True once the call was answered, also when it has ended since."""
        return self.answered_at is not None

    @property
    def reason(self) -> EndedReason | None:
        """Why the call ends; None before that."""
        return self.ending.result() if self.ending.done() else None

    def mark_ringing(self) -> None:
        """Set the state of a queued call whose INVITE was sent."""
        self._enter(SessionState.RINGING)

    def mark_answered(self) -> datetime:
        """Set the time of the answer unless it is set, and the state unless the call is ending. Returns that time."""
        if self.answered_at is None:
            self.answered_at = utc_now()
            self._answered_s = asyncio.get_running_loop().time()
        self._enter(SessionState.ANSWERED)
        return self.answered_at

    def since_answer_ms(self) -> float:
        """The time since the answer, whatever sets the wall clock meanwhile; 0 before it."""
        now_s = asyncio.get_running_loop().time()
        return 0.0 if self._answered_s is None else (now_s - self._answered_s) * 1000

    def mark_active(self) -> None:
        """Set the state of a call whose audio was negotiated."""
        self._enter(SessionState.ACTIVE)

    def end(self, reason: EndedReason, at: datetime | None = None) -> None:
        """End the call, `at` this time or now; the first reason counts."""
        if not self.ending.done():
            self.ended_at = at or utc_now()
            self.ending.set_result(reason)
            self._enter(SessionState.ENDING)

    def mark_ended(self) -> None:
        """Set the state of a call whose leg has ended, and whose end is stored or was handed over."""
        self._enter(SessionState.ENDED)

    def _enter(self, state: SessionState) -> None:
        """Enter a state that can follow; any other is ignored, because a late event must not revive a call that is
        ending."""
        if state in _NEXT[self._state]:
            self._state = state
