"""Buffer of what a full disk, or a database that fails, keeps from being stored: rows and starts of calls, and the ids
of ended ones. It stays in memory until it is stored; the rest is lost when the process ends, and logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import sqlalchemy as sa

from config.errors import Unavailable
from storage.calls import calls
from storage.calls.calls import Call

MAX_ROWS: Final = 1000
"""Buffered rows; with more, inbound calls are rejected with 503."""
MAX_ENDS: Final = 2000
"""Ended calls that wait for disk space, because a transcript may take 100 kB."""
RETRY_AFTER_S: Final = 10

T = TypeVar("T")
StoreStart = Callable[[sa.Connection], bool]
"""Stores the start of a call. Returns True if there is an event."""


class DiskFullBuffer:
    """For the event loop, except `insert_row_and`."""

    def __init__(self) -> None:
        self._rows: dict[str, Call] = {}
        self._starts: dict[str, StoreStart] = {}
        self._ends: set[str] = set()

    def add(self, call: Call) -> None:
        """Add the row of a new call. Raises `Unavailable` if there are `MAX_ROWS`."""
        if len(self._rows) >= MAX_ROWS:
            raise Unavailable("the disk is full, and too many calls wait to be stored", RETRY_AFTER_S)
        self._rows[call.id] = call

    def add_start(self, call_id: str, store: StoreStart) -> None:
        """Add the start of an active call, which could not be stored."""
        self._starts[call_id] = store

    def row(self, call_id: str) -> Call | None:
        """Returns the row of a call that is not in the database; None if it is."""
        return self._rows.get(call_id)

    def insert_row_and(self, call_id: str, work: Callable[[sa.Connection], T], conn: sa.Connection) -> T:
        """Store the row and the start of a call if they are buffered, then run `work`, in the same transaction."""
        call, store_start = self._rows.get(call_id), self._starts.get(call_id)
        if call is not None:
            calls.insert_missing(conn, call)
        if store_start is not None:
            store_start(conn)
        return work(conn)

    def remove_row(self, call_id: str) -> bool:
        """Remove the row and the start of a call, because the transaction of `insert_row_and` is committed. Returns
        True if the start was among it, which may have an event."""
        self._rows.pop(call_id, None)
        return self._starts.pop(call_id, None) is not None

    def add_end(self, call_id: str) -> bool:
        """Add an ended call whose end is not stored. Returns False if there are `MAX_ENDS`."""
        if len(self._ends) >= MAX_ENDS:
            return False
        self._ends.add(call_id)
        return True

    def remove_end(self, call_id: str) -> None:
        """Remove a call whose end is stored or lost."""
        self._ends.discard(call_id)
        self.remove_row(call_id)

    @property
    def ended_calls(self) -> frozenset[str]:
        """Ids of the calls whose end is not stored."""
        return frozenset(self._ends)

    def open_calls(self) -> dict[str, str]:
        """Returns the organizations of buffered calls that have not ended, by the calls' ids."""
        return {each: call.organization_id for each, call in self._rows.items() if each not in self._ends}
