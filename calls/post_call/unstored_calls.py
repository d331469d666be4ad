"""Calls that could not be stored because the disk is full: their rows, and which of them have ended. They are kept in
memory until they are stored; what is left when the process ends is lost, and the log names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import sqlalchemy as sa

from config.errors import Unavailable
from storage.calls import calls
from storage.calls.calls import Call

MAX_ROWS: Final = 1000
"""Calls without a row; the next inbound call is rejected with 503."""
MAX_ENDS: Final = 2000
"""Ended calls that wait for disk space; a transcript may take 100 kB."""
RETRY_AFTER_S: Final = 10

T = TypeVar("T")


class UnstoredCalls:
    """For the event loop, except `with_row`."""

    def __init__(self) -> None:
        self._rows: dict[str, Call] = {}
        self._ends: set[str] = set()

    def add(self, call: Call) -> None:
        """A call begins without a row. Raises `Unavailable` if there are too many."""
        if len(self._rows) >= MAX_ROWS:
            raise Unavailable("the disk is full, and too many calls wait to be stored", RETRY_AFTER_S)
        self._rows[call.id] = call

    def row(self, call_id: str) -> Call | None:
        """The row of a call that the database does not have."""
        return self._rows.get(call_id)

    def with_row(self, call_id: str, work: Callable[[sa.Connection], T], conn: sa.Connection) -> T:
        """Store the row of a call if it is missing, then do `work`; in one transaction."""
        call = self._rows.get(call_id)
        if call is not None:
            calls.insert_missing(conn, call)
        return work(conn)

    def row_stored(self, call_id: str) -> None:
        """The transaction of `with_row` is committed."""
        self._rows.pop(call_id, None)

    def add_end(self, call_id: str) -> bool:
        """A call has ended, and its end is not stored. Returns False if there are too many."""
        if len(self._ends) >= MAX_ENDS:
            return False
        self._ends.add(call_id)
        return True

    def remove_end(self, call_id: str) -> None:
        """The call's end is stored, or lost."""
        self._ends.discard(call_id)
        self._rows.pop(call_id, None)

    @property
    def ended(self) -> frozenset[str]:
        """Calls whose end is not stored."""
        return frozenset(self._ends)

    def open_rows(self) -> dict[str, str]:
        """The organizations of calls that have neither a row nor an end, by the calls' ids."""
        return {each: call.organization_id for each, call in self._rows.items() if each not in self._ends}
