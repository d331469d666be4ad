"""One of the two databases of a copy, on the calling thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from storage.row_copy.copied_tables import CopiedTable, Row, Step

PROGRESS: Final = "copy.progress"
"""The name of the fact that tells what has been copied; it is not copied itself."""


class Side(Protocol):
    """An open database. Errors of its driver pass: `opening.open_side` turns them into `StartupError`."""

    name: str
    """Its file or server, for messages."""
    takes_nul: bool
    """Whether a text may have the character U+0000."""

    def snapshot(self) -> AbstractContextManager[None]:
        """A read transaction that sees one state of all tables."""

    def transaction(self) -> AbstractContextManager[None]:
        """A write transaction, or a part of the one that is open."""

    def revision(self) -> str | None:
        """Returns the revision of the tables; None when there are none."""

    def set_revision(self, revision: str) -> None:
        """Replace the revision."""

    def has_tables(self) -> bool:
        """True if the database has any table, of whatever program."""

    def fact(self, name: str) -> str | None:
        """Returns the value of a fact."""

    def set_fact(self, name: str, value: str | None) -> None:
        """Replace the value of a fact; None removes it."""

    def count(self, table: CopiedTable) -> int:
        """Returns the number of rows."""

    def first_key(self, table: CopiedTable) -> Row | None:
        """Returns the first key in byte order; None if the table is empty."""

    def rows(self, table: CopiedTable, after: Row | None = None) -> Iterator[Row]:
        """Yields the rows by their keys in byte order, those behind the key `after`. Only a few are in memory."""

    def insert(self, step: Step, rows: Sequence[Row]) -> None:
        """Insert rows, or the columns that refer to rows of the same table. No trigger fires. In a transaction."""

    def empty(self, tables: Sequence[CopiedTable]) -> None:
        """Delete all rows of all tables, in a transaction."""

    def complete(self, tables: Sequence[CopiedTable]) -> None:
        """Have the numbers of new rows follow those of the copied ones, and check references. Raises `StartupError`."""
