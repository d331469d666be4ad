"""Dialog recovery: the SIP dialogs that a killed process has left, which the next one ends at its start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from calls.cooperative_scheduling import TimeSlice
from calls.trunks.provisioning import TrunkBuilder, trunk_destinations, trunk_key
from calls.trunks.trunk_authorization import TrunkAuthorizer
from config.clock import iso, utc_now
from config.secrets import SecretUnreadable
from sipcore.dialogs.dialog_record import DialogRecord
from sipcore.dialogs.orphaned_dialogs import OrphanedDialogEnd
from sipcore.security.digest import Credentials
from sipcore.trunks.trunk import Trunk
from storage.calls.dialog_journal import DialogFiles
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.phone_numbers import trunk_grants
from storage.phone_numbers.phone_numbers import PhoneNumber

MAX_AGE: Final = timedelta(hours=24)
"""Peers have ended an older dialog themselves."""
RESOLVE_TIMEOUT_S: Final = 1.0
"""How long the first BYE waits for the DNS. Most dialogs lead to addresses."""
NO_TRUNK: Final = "the phone number is gone, or has no trunk any more"

EndDialog = Callable[[DialogRecord, Credentials | None], Awaitable[asyncio.Future[OrphanedDialogEnd]]]
"""Sends BYE or CANCEL; returns the outcome. Raises `ConnectionError` and `ValueError`."""

log = structlog.get_logger()


class DialogRecorder:
    """Stores the dialogs of live calls in files (`sipcore.dialogs.dialog_record.DialogJournal`)."""

    def __init__(self, files: DialogFiles) -> None:
        self._files = files

    def store(self, key: int, trunk: str, record: DialogRecord) -> None:
        """Store a call's record in place of an earlier one."""
        self._files.store(key, {"trunk": trunk, "storedAt": iso(utc_now()), "dialog": record.as_json()})

    def remove(self, key: int) -> None:
        """The call has ended."""
        self._files.remove(key)


@dataclass(frozen=True)
class _OrphanedDialog:
    """An entry of the journal: the name of its file, the key of its trunk, and the dialog."""

    name: str
    trunk: str
    stored_at: datetime
    record: DialogRecord

    @classmethod
    def of(cls, name: str, entry: object) -> _OrphanedDialog:
        """Raises `ValueError` for a damaged entry."""
        if not isinstance(entry, Mapping):
            raise ValueError("it is no JSON object")
        trunk, stored_at = entry.get("trunk"), entry.get("storedAt")
        if not isinstance(trunk, str) or not isinstance(stored_at, str):
            raise ValueError("its trunk or its time is missing")
        at = datetime.fromisoformat(stored_at)
        if at.tzinfo is None:
            raise ValueError("its time has no offset")
        return cls(name, trunk, at, DialogRecord.of_json(entry.get("dialog")))


class DialogRecovery:
    """Ends each dialog through the trunk of its phone number, as the trunk is now."""

    def __init__(
        self,
        files: DialogFiles,
        database: Database,
        builder: TrunkBuilder,
        authorizer: TrunkAuthorizer,
        end: EndDialog,
    ) -> None:
        self._files = files
        self._database = database
        self._builder = builder
        self._authorizer = authorizer
        self._end = end
        self._ending: set[asyncio.Task[None]] = set()

    async def end_all(self) -> None:
        """Send a BYE or CANCEL in every dialog of an earlier process. Returns when all are sent; the outcomes are
        awaited and logged in the background. Keeps what cannot be ended without the database for the next start."""
        dialogs = await asyncio.to_thread(self._read)
        if not dialogs:
            return
        log.warning("dialogs.orphaned", dialogs=len(dialogs))
        try:
            trunks = await self._trunks({each.trunk for each in dialogs})
        except StorageUnavailable as error:
            log.error("dialogs.not_ended", dialogs=len(dialogs), cause=error.cause)
            return
        await asyncio.gather(*(self._send(each, trunks[each.trunk]) for each in dialogs))

    async def close(self) -> None:
        """Await no more outcomes; what has none yet is tried again by the next start."""
        for task in self._ending:
            task.cancel()
        if self._ending:
            await asyncio.wait(self._ending)

    def _read(self) -> list[_OrphanedDialog]:
        """Blocks. Removes entries that are damaged or too old."""
        dialogs, now = [], utc_now()
        for name, entry in self._files.former_entries():
            try:
                dialog = _OrphanedDialog.of(name, entry)
                if not -MAX_AGE < now - dialog.stored_at < MAX_AGE:
                    raise ValueError(f"it is older than {MAX_AGE}")
            except (ValueError, OverflowError) as error:
                log.warning("dialogs.entry_dropped", entry=name, why=str(error))
                self._files.remove_former(name)
            else:
                dialogs.append(dialog)
        return dialogs

    async def _trunks(self, keys: Collection[str]) -> dict[str, Trunk | str]:
        """Returns each trunk, or why it may not be used. Raises `StorageUnavailable`."""
        policy = self._authorizer.policy
        rules, numbers = await self._database.read(
            lambda conn: trunk_grants.current_access_rules_and_numbers(conn, policy), priority="calls"
        )
        await self._authorizer.update(rules, numbers, TimeSlice())
        wanted = {key: number for number in numbers for key in (number.id, trunk_key(number)) if key in keys}
        permitted = {key: number for key, number in wanted.items() if self._problem(number) is None}
        await self._resolve(permitted.values())
        return {key: self._trunk(wanted.get(key)) for key in keys}

    def _problem(self, number: PhoneNumber) -> str | None:
        return self._authorizer.problem(number, self._builder.dns_watcher.resolved_addresses)

    async def _resolve(self, numbers: Collection[PhoneNumber]) -> None:
        """Resolve the hosts of the trunks, for `RESOLVE_TIMEOUT_S` at most."""
        destinations = {each for number in numbers for each in trunk_destinations(number) if each is not None}
        with suppress(TimeoutError):
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                await asyncio.gather(*map(self._builder.dns_watcher.resolve, destinations))

    def _trunk(self, number: PhoneNumber | None) -> Trunk | str:
        if number is None:
            return NO_TRUNK
        try:
            return self._problem(number) or self._builder.build(number) or NO_TRUNK
        except SecretUnreadable as error:
            return str(error)

    async def _send(self, dialog: _OrphanedDialog, trunk: Trunk | str) -> None:
        record = dialog.record
        event = log.bind(request=record.request, sip_call_id=record.call_id, trunk=dialog.trunk)
        if isinstance(trunk, str):
            event.warning("dialog.not_ended", why=trunk)
            await asyncio.to_thread(self._files.remove_former, dialog.name)
            return
        try:
            outcome = await self._end(record, trunk.credentials)
        except (ConnectionError, ValueError) as error:
            event.warning("dialog.not_ended", why=str(error))
            await asyncio.to_thread(self._files.remove_former, dialog.name)
            return
        task = asyncio.create_task(self._finish(dialog, outcome, event))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _finish(self, dialog: _OrphanedDialog, outcome: asyncio.Future[OrphanedDialogEnd], event: Any) -> None:
        end = await outcome
        if end.ended:
            event.info("dialog.ended", status=end.status)
        else:
            event.warning("dialog.not_ended", status=end.status or None, why=end.reason)
        await asyncio.to_thread(self._files.remove_former, dialog.name)
