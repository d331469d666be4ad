"""Reconciliation of the calls of this process with their rows: after an outage of the database, or on a full disk, an
active call may have no row, and a row may have no call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from calls.active_calls import ActiveCall, ActiveCalls
from calls.call_record.outcome import CallOutcome
from calls.post_call.finalizer import CallFinalizer
from config.clock import utc_now
from config.errors import TrunklineError
from storage.calls import calls
from storage.calls.calls import Call
from storage.database.database import Database, call_lock
from storage.database.errors import StorageUnavailable

STORE_ROWS_EVERY_S: Final = 2.0
"""Interval at which active calls without a row are stored while the database can be reached."""
MIN_ROW_AGE_S: Final = 30.0
"""Least age of a row without a session that is closed, because a row is stored before its session begins."""
CLOSE_AFTER_OUTAGE_S: Final = 30.0
"""Time from the end of an outage until rows without a session are looked for."""
CLOSE_EVERY_S: Final = 60.0
"""Interval at which rows without a session are looked for."""

log = structlog.get_logger()


class RowReconciliation:
    """Stores the rows that active calls lack, and closes the rows that have no session. Event loop only."""

    def __init__(self, database: Database, finalizer: CallFinalizer, active: ActiveCalls) -> None:
        self._database = database
        self._finalizer = finalizer
        self._active = active
        self._lock = asyncio.Lock()
        """Held while rows of active calls are stored, so that none is stored twice at once."""

    async def run(self) -> None:
        """Store the active calls that have no row, and close the rows without a session, until cancelled. The end of an
        outage finds most of them, but not a call that is admitted just then, nor one whose transaction timed out
        without an outage."""
        closed_s = time.monotonic()
        while True:
            await asyncio.sleep(STORE_ROWS_EVERY_S)
            buffer = self._finalizer.outage_buffer
            without_row = [each for each in self._active.all() if buffer.row(each.call.id) is not None]
            if self._database.away_since_s is None:
                await self.store(without_row)
            if time.monotonic() - closed_s >= CLOSE_EVERY_S:
                await self.close_rows_without_session()
                closed_s = time.monotonic()

    async def store(self, active: Sequence[ActiveCall]) -> None:
        """Store what an outage kept from being stored of these calls."""
        async with self._lock:
            for each in active:
                try:
                    await self._finalizer.store_active_call(each.call, each.snapshot().answered_at)
                except TrunklineError as error:
                    log.debug("call.progress_not_stored", call_id=each.call.id, cause=str(error))

    async def journal(self, call_id: str) -> None:
        """Write a call without a row to the journal: besides the caller, who does not wait for the disk."""
        buffer = self._finalizer.outage_buffer
        if buffer.row(call_id) is not None and call_id not in buffer.ended_calls:
            await buffer.journal(call_id)

    async def end_rejected(self, storing: Awaitable[tuple[Call, bool]]) -> None:
        """End a call whose row this transaction stores although its INVITE was rejected, so that it takes no place."""
        try:
            call, _ = await storing
            await self._close(call)
        except TrunklineError as error:  # there is no row, or `close_rows_without_session` finds it
            log.debug("call.rejected_not_stored", cause=str(error))

    async def close_rows_without_session(self) -> None:
        """End the calls of this node that are open in the database and not here: those of INVITEs that were refused
        while the row was being stored, or because the outcome of its commit was unknown."""
        latest = utc_now() - timedelta(seconds=MIN_ROW_AGE_S)
        try:
            for call in await self._database.read(partial(calls.open_of_node, created_before=latest)):
                known = self._active.known_ids().union(self._active.child_calls)
                is_open = self._finalizer.outage_buffer.knows(call.id) or self._finalizer.is_closing(call.id)
                if call.id in known or is_open:
                    continue
                log.warning("call.without_session", call_id=call.id, created_at=str(call.created_at))
                await self._close(call)
        except StorageUnavailable as error:
            log.debug("calls.rows_not_read", cause=error.cause)

    async def _close(self, call: Call) -> None:
        call_lock.set(call.organization_id)
        await self._finalizer.finish(call.id, CallOutcome(status="failed", reason="error", ended_at=utc_now()), None)
