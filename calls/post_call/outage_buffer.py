"""Buffer of what cannot be stored of calls while the database cannot be reached, or has a full disk: rows and starts of
calls, and ended ones. It is in memory, and in the call journal on this node's disk as far as that can be written: then
the next process stores it. Without the journal it is lost when the process ends, and that is logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import sqlalchemy as sa

from calls import metrics
from calls.call_record.outcome import CallOutcome
from calls.post_call.journal_records import CallRecord, CallStart
from config.errors import Unavailable
from storage.calls import calls
from storage.calls.call_journal import CallJournal
from storage.calls.calls import Call

MAX_ROWS: Final = 1000
"""Buffered rows; with more, inbound calls are rejected with 503."""
MAX_ENDS: Final = 2000
"""Ended calls that are kept in memory, because a transcript may take 100 kB."""
RETRY_AFTER_S: Final = 10

T = TypeVar("T")


class OutageBuffer:
    """For the event loop, except `insert_row_and`."""

    def __init__(self, journal: CallJournal | None = None) -> None:
        self._journal: Final = journal
        self._rows: dict[str, Call] = {}
        self._starts: dict[str, CallStart] = {}
        self._ends: set[str] = set()
        self._journaled: dict[str, bool] = {}
        """The calls that this process has written to the journal; False: the last record could not be written."""

    def add(self, call: Call) -> None:
        """Add the row of a new call. Raises `Unavailable` if there are `MAX_ROWS`."""
        if len(self._rows) >= MAX_ROWS:
            raise Unavailable("the database is away, and too many calls wait to be stored", RETRY_AFTER_S)
        self._rows[call.id] = call

    def add_start(self, start: CallStart) -> None:
        """Add the start of an active call, which could not be stored."""
        self._starts[start.call.id] = start

    async def journal(self, call_id: str, end: CallOutcome | None = None) -> bool:
        """Write what is buffered of a call to the journal, and its end. Returns False if that was not possible."""
        row, start = self._rows.get(call_id), self._starts.get(call_id)
        if self._journal is None or (row is None and start is None and end is None):
            return False
        call = row if start is None else start.call
        record = CallRecord(call, row is not None, None if start is None else start.at, end)
        if await self._journal.write(call_id, record.to_json()):
            self._journaled[call_id] = True
            return True
        metrics.UNJOURNALED_CALLS.inc()
        if call_id in self._journaled:
            self._journaled[call_id] = False
        return False

    def is_journaled(self, call_id: str) -> bool:
        """True if the journal has all that is buffered of the call."""
        return self._journaled.get(call_id, False)

    def row(self, call_id: str) -> Call | None:
        """Returns the row of a call that is not in the database; None if it is."""
        return self._rows.get(call_id)

    def insert_row_and(self, call_id: str, work: Callable[[sa.Connection], T], conn: sa.Connection) -> T:
        """Store the row and the start of a call if they are buffered, then run `work`, in the same transaction."""
        call, start = self._rows.get(call_id), self._starts.get(call_id)
        if call is not None:
            calls.insert_missing(conn, call)
        if start is not None:
            start.store(conn)
        return work(conn)

    def remove_row(self, call_id: str) -> bool:
        """Remove the row and the start of a call, because the transaction of `insert_row_and` is committed. Returns
        True if the start was among it, which may have an event."""
        self._rows.pop(call_id, None)
        started = self._starts.pop(call_id, None) is not None
        if call_id not in self._ends:
            self._remove_from_journal(call_id)
        return started

    def add_end(self, call_id: str) -> bool:
        """Add an ended call whose end is not stored. Returns False if there are `MAX_ENDS`."""
        if len(self._ends) >= MAX_ENDS:
            return False
        self._ends.add(call_id)
        return True

    def remove_end(self, call_id: str) -> None:
        """Remove a call whose end is stored."""
        self._ends.discard(call_id)
        self.remove_row(call_id)

    def forget(self, call_id: str) -> None:
        """Remove a call from memory alone: the journal has its end, or that is lost."""
        self._ends.discard(call_id)
        self._rows.pop(call_id, None)
        self._starts.pop(call_id, None)
        self._journaled.pop(call_id, None)

    def _remove_from_journal(self, call_id: str) -> None:
        if self._journal is not None and self._journaled.pop(call_id, None) is not None:
            self._journal.remove(call_id)

    @property
    def ended_calls(self) -> frozenset[str]:
        """Ids of the calls whose end is not stored."""
        return frozenset(self._ends)

    def knows(self, call_id: str) -> bool:
        """True if something of the call is buffered."""
        return call_id in self._ends or call_id in self._rows or call_id in self._starts

    def open_calls(self) -> dict[str, str]:
        """Returns the organizations of buffered calls that have not ended, by the calls' ids."""
        return {each: call.organization_id for each, call in self._rows.items() if each not in self._ends}
