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
    """Where a call stands.

    QUEUED -> RINGING -> ANSWERED -> ACTIVE
    any of these -- end --> ENDING -> ENDED
    """

    QUEUED = auto()
    """Outbound: no INVITE was sent yet."""
    RINGING = auto()
    """The INVITE was received, or sent, and is not answered."""
    ANSWERED = auto()
    """Answered; no audio was negotiated yet."""
    ACTIVE = auto()
    """Audio flows, and the agent talks with the caller."""
    ENDING = auto()
    """The reason of the end is known; the leg is hung up, and the end is stored."""
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

    @property
    def state(self) -> SessionState:
        """Where the call stands."""
        return self._state

    @property
    def is_ending(self) -> bool:
        """True once the call is to end."""
        return self.ending.done()

    @property
    def is_answered(self) -> bool:
        """True once the call was answered, also when it has ended since."""
        return self.answered_at is not None

    @property
    def reason(self) -> EndedReason | None:
        """Why the call ends; None while it goes on."""
        return self.ending.result() if self.ending.done() else None

    def invite_sent(self) -> None:
        """The INVITE of a queued call is on its way."""
        self._enter(SessionState.RINGING)

    def answered(self) -> datetime:
        """The call was answered, now or before; returns when. It may be ending already."""
        if self.answered_at is None:
            self.answered_at = utc_now()
        self._enter(SessionState.ANSWERED)
        return self.answered_at

    def audio_flows(self) -> None:
        """Audio was negotiated with the peer."""
        self._enter(SessionState.ACTIVE)

    def end(self, reason: EndedReason) -> None:
        """End the call; the first reason counts."""
        if not self.ending.done():
            self.ended_at = utc_now()
            self.ending.set_result(reason)
            self._enter(SessionState.ENDING)

    def closed(self) -> None:
        """The leg has ended, and the end of the call is stored or was handed over."""
        self._enter(SessionState.ENDED)

    def _enter(self, state: SessionState) -> None:
        """Nothing happens when the state cannot follow: what comes late of a call that is ending does not revive it."""
        if state in _NEXT[self._state]:
            self._state = state
