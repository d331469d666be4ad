"""Orphaned dialogs: ends the dialogs of a process that has died, by BYE and CANCEL."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Final

from sipcore import _native
from sipcore.dialogs.dialog_record import DialogRecord
from sipcore.messages import reason_header
from sipcore.messages.headers import printable
from sipcore.pjsip_thread import PjsipThread
from sipcore.security.digest import Credentials

_REASON: Final = reason_header.format_reason(reason_header.q850_cause(reason_header.TEMPORARY_FAILURE))
_NO_DIALOG: Final = 481


@dataclass(frozen=True)
class OrphanedDialogEnd:
    """The outcome: the final status of the request, 0 without one, and the reason phrase or the failure."""

    status: int
    reason: str

    @property
    def ended(self) -> bool:
        """True if the peer has ended the dialog now, or had ended it before."""
        return self.status // 100 == 2 or self.status == _NO_DIALOG


class OrphanedDialogs:
    """Event loop only."""

    def __init__(self, pjsip_thread: PjsipThread) -> None:
        self._pjsip_thread = pjsip_thread
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._awaited: dict[int, asyncio.Future[OrphanedDialogEnd]] = {}

    def install_on_pjsip_thread(self) -> None:
        """On the PJSIP thread, when PJSUA is initialized."""
        _native.orphaned_dialog_install(self._on_native_result)

    async def end(self, record: DialogRecord, credentials: Credentials | None) -> asyncio.Future[OrphanedDialogEnd]:
        """Send the request that ends the dialog; returns its outcome, which may take as long as a SIP transaction (32
        s). `credentials` answer a challenge. Raises `ConnectionError` and `ValueError` if it cannot be sent."""
        token = next(self._tokens)
        outcome = self._awaited[token] = self._loop.create_future()
        login = (credentials.user, credentials.password) if credentials else ("", "")
        try:
            await self._pjsip_thread.run(_native.orphaned_dialog_end, token, record.as_native(), _REASON, login)
        except BaseException:
            del self._awaited[token]
            raise
        return outcome

    def close(self) -> None:
        """Wait for nothing more."""
        for outcome in self._awaited.values():
            outcome.cancel()
        self._awaited.clear()

    def _on_native_result(self, token: int, status: int, reason: str) -> None:
        """On PJSIP's threads."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_result, token, OrphanedDialogEnd(status, printable(reason)))

    def _on_result(self, token: int, end: OrphanedDialogEnd) -> None:
        outcome = self._awaited.pop(token, None)
        if outcome is not None and not outcome.done():
            outcome.set_result(end)
