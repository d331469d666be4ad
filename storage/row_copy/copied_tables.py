"""The tables that are copied, parents first, with what a value of each column is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

from storage.tables import metadata

Kind = Literal["text", "json", "integer", "float", "boolean", "bytes"]
Value = str | int | float | bool | bytes | None
Row = tuple[Value, ...]
"""The values of a row, the same for both engines: JSON is its stored text."""

NOT_COPIED: Final = frozenset({"nodes", "leases", "shared_limits"})
"""Tables about the servers that run on a database."""


@dataclass(frozen=True)
class CopiedColumn:
    """A column; `in_sqlite`: its name there."""

    name: str
    kind: Kind
    in_sqlite: str


@dataclass(frozen=True)
class CopiedTable:
    """A table; the columns of its key are the first ones. `numbered`: PostgreSQL numbers its rows by itself."""

    name: str
    key: tuple[str, ...]
    columns: tuple[CopiedColumn, ...]
    numbered: bool = False

    def key_of(self, row: Row) -> Row:
        """The row's key."""
        return row[: len(self.key)]


@dataclass(frozen=True)
class Step:
    """A step of the copy: the rows of a table, without the columns `later` that refer to rows of the same table; or
    (`only_later`) these columns, once all rows are there."""

    table: CopiedTable
    later: str | None = None
    only_later: bool = False

    @property
    def name(self) -> str:
        """A name for the progress."""
        return f"{self.table.name}.{self.later}" if self.only_later else self.table.name


@cache
def copied_tables() -> tuple[CopiedTable, ...]:
    """All tables of which rows are copied; those that others refer to come first."""
    found = [_copied(table) for table in metadata.sorted_tables if table.name not in NOT_COPIED]
    return (*found, _TEXT_INDEX)


@cache
def steps() -> tuple[Step, ...]:
    """All steps, in order."""
    return tuple(_steps())


def _steps() -> Iterator[Step]:
    for copied in copied_tables():
        later = _refers_to_itself(copied.name)
        yield Step(copied, later)
        if later is not None:
            reference = next(each for each in copied.columns if each.name == later)
            keys = copied.columns[: len(copied.key)]
            yield Step(replace(copied, columns=(*keys, reference)), later, only_later=True)


def _copied(table: sa.Table) -> CopiedTable:
    keys = list(table.primary_key.columns)
    others = [column for column in table.columns if not column.primary_key]
    columns = tuple(CopiedColumn(each.name, _kind(each.type), each.name) for each in (*keys, *others))
    numbered = len(keys) == 1 and columns[0].kind == "integer" and table.autoincrement_column is keys[0]
    return CopiedTable(table.name, tuple(each.name for each in keys), columns, numbered)


def _refers_to_itself(name: str) -> str | None:
    table = metadata.tables.get(name)
    keys = () if table is None else table.foreign_keys
    return next((each.parent.name for each in keys if each.column.table is table), None)


def _kind(column_type: sa.types.TypeEngine[object]) -> Kind:
    plain = column_type.impl_instance if isinstance(column_type, TypeDecorator) else column_type
    kinds: tuple[tuple[type[Any], Kind], ...] = (
        (sa.Boolean, "boolean"),
        (sa.JSON, "json"),
        (sa.LargeBinary, "bytes"),
        (sa.Float, "float"),
        (sa.Integer, "integer"),
        (sa.String, "text"),
    )
    return next(kind for cls, kind in kinds if isinstance(plain, cls))


_TEXT_INDEX: Final = CopiedTable(
    "knowledge_index",
    ("chunk_id",),
    (
        CopiedColumn("chunk_id", "integer", "rowid"),
        CopiedColumn("agent", "text", "agent"),
        CopiedColumn("terms", "text", "terms"),
    ),
)
"""The text index, whose table is no part of the metadata (`storage.knowledge.text_index`)."""
