"""Buffer of the calls that a full disk keeps from being stored: their rows, and the ids of ended ones. They stay in
memory until they are stored; the rest is lost when the process ends, and logged."""

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


class DiskFullBuffer:
    """For the event loop, except `insert_row_and`."""

    def __init__(self) -> None:
        self._rows: dict[str, Call] = {}
        self._ends: set[str] = set()

    def add(self, call: Call) -> None:
        """Add the row of a new call. Raises `Unavailable` if there are `MAX_ROWS`."""
        if len(self._rows) >= MAX_ROWS:
            raise Unavailable("the disk is full, and too many calls wait to be stored", RETRY_AFTER_S)
        self._rows[call.id] = call

    def row(self, call_id: str) -> Call | None:
        """Returns the row of a call that is not in the database; None if it is."""
        return self._rows.get(call_id)

    def insert_row_and(self, call_id: str, work: Callable[[sa.Connection], T], conn: sa.Connection) -> T:
        """Insert the row of a call if it is buffered, then run `work`, in the same transaction."""
        call = self._rows.get(call_id)
        if call is not None:
            calls.insert_missing(conn, call)
        return work(conn)

    def remove_row(self, call_id: str) -> None:
        """Remove the row of a call, because the transaction of `insert_row_and` is committed."""
        self._rows.pop(call_id, None)

    def add_end(self, call_id: str) -> bool:
        """Add an ended call whose end is not stored. Returns False if there are `MAX_ENDS`."""
        if len(self._ends) >= MAX_ENDS:
            return False
        self._ends.add(call_id)
        return True

    def remove_end(self, call_id: str) -> None:
        """Remove a call whose end is stored or lost."""
        self._ends.discard(call_id)
        self._rows.pop(call_id, None)

    @property
    def ended_calls(self) -> frozenset[str]:
        """Ids of the calls whose end is not stored."""
        return frozenset(self._ends)

    def open_calls(self) -> dict[str, str]:
        """Returns the organizations of buffered calls that have not ended, by the calls' ids."""
        return {each: call.organization_id for each, call in self._rows.items() if each not in self._ends}
