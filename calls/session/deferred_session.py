"""What a client may do with a call whose session begins later than the call: once it is dialled, or its browser has
connected."""

from __future__ import annotations

import asyncio

from calls.session.call_listener import CallListener
from calls.session.call_session import CallSession
from calls.session.call_snapshot import CallSnapshot
from config.errors import Conflict
from sipcore.dialogs.call_leg import CallLeg
from storage.calls.calls import Call, EndedReason
from storage.calls.transfers import Transfer, TransferOrder


class DeferredSession:
    """Passes on to `session` once it is set; before, each method but `snapshot` raises `Conflict`."""

    def __init__(self, call: Call) -> None:
        self.call: Call = call
        self.session: CallSession | None = None

    @property
    def _in_progress(self) -> CallSession:
        if self.session is None:
            raise Conflict("The call is not in progress")
        return self.session

    def snapshot(self) -> CallSnapshot:
        """The state of the call at this moment."""
        return CallSnapshot(self.call) if self.session is None else self.session.snapshot()

    async def transfer(self, order: TransferOrder) -> Transfer:
        """See `CallSession.transfer`."""
        return await self._in_progress.transfer(order)

    def whisper(self, text: str, author: str) -> None:
        """See `CallSession.whisper`."""
        self._in_progress.whisper(text, author)

    def check_takeover(self) -> None:
        """See `CallSession.check_takeover`."""
        self._in_progress.check_takeover()

    def take_over(self, leg: CallLeg, name: str) -> asyncio.Future[EndedReason]:
        """See `CallSession.take_over`."""
        return self._in_progress.take_over(leg, name)

    def listen(self) -> CallListener:
        """See `CallSession.listen`."""
        return self._in_progress.listen()

    def set_held(self, on: bool) -> None:
        """See `CallSession.set_held`."""
        self._in_progress.set_held(on)
