"""A SQLite file as one side of a copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from config.errors import StartupError
from storage.row_copy.copied_tables import CopiedTable, Kind, Row, Step
from storage.row_copy.side import PROGRESS

_BUSY_S: Final = 60.0
_FROM_SQLITE: Final[Mapping[Kind, Callable[[Any], Any]]] = {"boolean": bool, "float": float, "json": str}
"""How a stored value becomes that of `Row`; SQLite stores JSON that is a number as a number."""


class SqliteSide:
    """A file. Its triggers are absent while rows are inserted, in the same transaction, and references are not checked
    until the end."""

    takes_nul = True

    def __init__(self, path: Path) -> None:
        """The file exists. Raises `sqlite3.Error`."""
        self.name = str(path)
        self._raw = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", _BUSY_S, isolation_level=None, uri=True)
        self._raw.execute("PRAGMA foreign_keys=OFF")
        self._raw.execute("PRAGMA synchronous=FULL")

    def make_scratch(self) -> None:
        """Keep no journal and sync nothing, because a file that is not completed is thrown away."""
        self._raw.execute("PRAGMA journal_mode=DELETE").fetchall()  # all of it in one file
        self._raw.execute("PRAGMA journal_mode=OFF").fetchall()
        self._raw.execute("PRAGMA synchronous=OFF")

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """As `Side.snapshot`."""
        self._raw.execute("BEGIN")
        self._raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # the snapshot begins with the first read
        try:
            yield
        finally:
            self._raw.execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As `Side.transaction`."""
        if self._raw.in_transaction:
            yield
            return
        self._raw.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._raw.execute("COMMIT")
        except BaseException:
            self._raw.rollback()
            raise

    def revision(self) -> str | None:
        """As `Side.revision`."""
        if self._value("SELECT 1 FROM sqlite_schema WHERE name = 'alembic_version'") is None:
            return None
        revision: str | None = self._value("SELECT version_num FROM alembic_version")
        return revision

    def set_revision(self, revision: str) -> None:
        """As `Side.set_revision`."""
        self._raw.execute("UPDATE alembic_version SET version_num = ?", (revision,))

    def has_tables(self) -> bool:
        """As `Side.has_tables`."""
        return self._value("SELECT 1 FROM sqlite_schema LIMIT 1") is not None

    def fact(self, name: str) -> str | None:
        """As `Side.fact`."""
        value: str | None = self._value("SELECT value FROM facts WHERE name = ?", name)
        return value

    def set_fact(self, name: str, value: str | None) -> None:
        """As `Side.set_fact`."""
        self._raw.execute("DELETE FROM facts WHERE name = ?", (name,))
        if value is not None:
            self._raw.execute("INSERT INTO facts(name, value) VALUES (?, ?)", (name, value))

    def count(self, table: CopiedTable) -> int:
        """As `Side.count`."""
        return int(self._value(f"SELECT count(*) FROM {table.name} {_without_progress(table)}"))

    def first_key(self, table: CopiedTable) -> Row | None:
        """As `Side.first_key`."""
        key = ", ".join(each.in_sqlite for each in table.columns[: len(table.key)])
        query = f"SELECT {key} FROM {table.name} {_without_progress(table)} ORDER BY {key} LIMIT 1"
        found: Row | None = self._raw.execute(query).fetchone()
        return found

    def rows(self, table: CopiedTable, after: Row | None = None) -> Iterator[Row]:
        """As `Side.rows`."""
        names = ", ".join(each.in_sqlite for each in table.columns)
        key = ", ".join(each.in_sqlite for each in table.columns[: len(table.key)])
        where, values = _without_progress(table), after or ()
        if after is not None:
            where += f"{' AND' if where else 'WHERE'} ({key}) > ({', '.join('?' * len(after))})"
        converters = [
            (at, _FROM_SQLITE[each.kind]) for at, each in enumerate(table.columns) if each.kind in _FROM_SQLITE
        ]
        try:
            for found in self._raw.execute(f"SELECT {names} FROM {table.name} {where} ORDER BY {key}", values):
                row = list(found)
                for at, convert in converters:
                    if row[at] is not None:
                        row[at] = convert(row[at])
                yield tuple(row)
        except (sqlite3.Error, ValueError) as error:
            raise StartupError(f"the database {self.name}: the table {table.name} cannot be read: {error}") from error

    def insert(self, step: Step, rows: Sequence[Row]) -> None:
        """As `Side.insert`."""
        table = step.table
        with self._without_triggers(table.name):
            if step.only_later:
                keys = " AND ".join(f"{each} = ?" for each in table.key)
                turned = [(*row[len(table.key) :], *table.key_of(row)) for row in rows]
                self._raw.executemany(f"UPDATE {table.name} SET {step.later} = ? WHERE {keys}", turned)
                return
            names, marks = ", ".join(each.in_sqlite for each in table.columns), ", ".join("?" * len(table.columns))
            self._raw.executemany(f"INSERT INTO {table.name}({names}) VALUES ({marks})", rows)

    @contextmanager
    def _without_triggers(self, table: str) -> Iterator[None]:
        """Without the table's triggers, which are there again at the end of the block."""
        of_table = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? ORDER BY rowid"
        found = self._raw.execute(of_table, (table,)).fetchall()
        for name, _ in found:
            self._raw.execute(f'DROP TRIGGER "{name}"')
        yield
        for _, statement in found:
            self._raw.execute(statement)

    def empty(self, tables: Sequence[CopiedTable]) -> None:
        """As `Side.empty`."""
        for table in tables:
            with self._without_triggers(table.name):
                self._raw.execute(f"DELETE FROM {table.name}")

    def complete(self, tables: Sequence[CopiedTable]) -> None:
        """As `Side.complete`."""
        broken = self._raw.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise StartupError(f"{self.name}: a row of {broken[0]} refers to a row of {broken[2]} that is missing")

    def _value(self, statement: str, *values: str) -> Any:
        row = self._raw.execute(statement, values).fetchone()
        return None if row is None else row[0]


def _without_progress(table: CopiedTable) -> str:
    return f"WHERE name != '{PROGRESS}'" if table.name == "facts" else ""
