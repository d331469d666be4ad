"""A database of a PostgreSQL server as one side of a copy. It needs no rights but those of the tables' owner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import sqlalchemy as sa

from config.errors import StartupError
from storage.database import database_url
from storage.database.postgresql.connection import open_session
from storage.row_copy.copied_tables import CopiedTable, Row, Step
from storage.row_copy.side import PROGRESS

_NO_LIMITS: Final = "SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0"
"""The transactions of a copy are long, and wait for the other side."""


class PostgresqlSide:
    """A session. The triggers of a table are disabled while rows are inserted, in the same transaction."""

    takes_nul = False

    def __init__(self, url: sa.URL) -> None:
        """Raises `psycopg.Error`."""
        self.name = database_url.shown(url)
        self._raw = open_session(url)
        self._raw.prepare_threshold = None
        self._execute(_NO_LIMITS)

    def close(self) -> None:
        """Close the session."""
        self._raw.close()

    def run(self, statement: str) -> None:
        """Run a statement, such as that of a lock."""
        self._execute(statement)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """As `Side.snapshot`."""
        self._execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            if not self._raw.closed:
                self._execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As `Side.transaction`."""
        with self._raw.transaction():
            yield

    def revision(self) -> str | None:
        """As `Side.revision`."""
        if self._value("SELECT to_regclass('alembic_version')") is None:
            return None
        revision: str | None = self._value("SELECT version_num FROM alembic_version")
        return revision

    def set_revision(self, revision: str) -> None:
        """As `Side.set_revision`."""
        self._execute("UPDATE alembic_version SET version_num = %s", (revision,))

    def has_tables(self) -> bool:
        """As `Side.has_tables`."""
        return self._value("SELECT 1 FROM pg_tables WHERE schemaname = current_schema() LIMIT 1") is not None

    def fact(self, name: str) -> str | None:
        """As `Side.fact`."""
        value: str | None = self._value("SELECT value FROM facts WHERE name = %s", name)
        return value

    def set_fact(self, name: str, value: str | None) -> None:
        """As `Side.set_fact`."""
        self._execute("DELETE FROM facts WHERE name = %s", (name,))
        if value is not None:
            self._execute("INSERT INTO facts(name, value) VALUES (%s, %s)", (name, value))

    def count(self, table: CopiedTable) -> int:
        """As `Side.count`."""
        return int(self._value(f"SELECT count(*) FROM {table.name} {_without_progress(table)}"))

    def first_key(self, table: CopiedTable) -> Row | None:
        """As `Side.first_key`."""
        key = ", ".join(table.key)
        query = f"SELECT {key} FROM {table.name} {_without_progress(table)} ORDER BY {key} LIMIT 1"
        found: Row | None = self._execute(query).fetchone()
        return found

    def rows(self, table: CopiedTable, after: Row | None = None) -> Iterator[Row]:
        """As `Side.rows`. The server sends them one by one."""
        names = ", ".join(f"{each.name}::text" if each.kind == "json" else each.name for each in table.columns)
        key = ", ".join(table.key)
        where, values = _without_progress(table), after or ()
        if after is not None:
            where += f"{' AND' if where else 'WHERE'} ({key}) > ({', '.join(['%s'] * len(after))})"
        query = f"SELECT {names} FROM {table.name} {where} ORDER BY {key}"
        try:
            with self._raw.cursor(binary=True) as cursor:
                yield from cursor.stream(query, values or None)
        except psycopg.Error as error:
            raise StartupError(f"the database {self.name}: the table {table.name} cannot be read: {error}") from error

    def insert(self, step: Step, rows: Sequence[Row]) -> None:
        """As `Side.insert`."""
        table = step.table
        self._execute(f"ALTER TABLE {table.name} DISABLE TRIGGER USER")
        if step.only_later:
            keys = " AND ".join(f"{each} = %s" for each in table.key)
            update = f"UPDATE {table.name} SET {step.later} = %s WHERE {keys}"
            turned = [(*row[len(table.key) :], *table.key_of(row)) for row in rows]
            with self._raw.cursor() as cursor:
                cursor.executemany(update, turned)
        else:
            names = ", ".join(each.name for each in table.columns)
            statement = f"COPY {table.name}({names}) FROM STDIN"
            with self._raw.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        self._execute(f"ALTER TABLE {table.name} ENABLE TRIGGER USER")

    def empty(self, tables: Sequence[CopiedTable]) -> None:
        """As `Side.empty`."""
        self._execute(f"TRUNCATE {', '.join(each.name for each in tables)}")

    def complete(self, tables: Sequence[CopiedTable]) -> None:
        """As `Side.complete`. References are checked by each insert."""
        for table in tables:
            if table.numbered:
                key = table.key[0]
                self._execute(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', '{key}'), coalesce(max({key}), 1), "
                    f"max({key}) IS NOT NULL) FROM {table.name}"
                )
        self._execute(f"ANALYZE {', '.join(each.name for each in tables)}")

    def _execute(self, statement: str, values: tuple[Any, ...] | None = None) -> psycopg.Cursor[Any]:
        return self._raw.execute(statement, values)

    def _value(self, statement: str, *values: str) -> Any:
        row = self._execute(statement, values or None).fetchone()
        return None if row is None else row[0]


def _without_progress(table: CopiedTable) -> str:
    return f"WHERE name != '{PROGRESS}'" if table.name == "facts" else ""
