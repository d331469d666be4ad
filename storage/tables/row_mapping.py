"""Between rows and frozen dataclasses: a dataclass's fields name the columns that it is read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import sqlalchemy as sa

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Item = TypeVar("Item")
BATCH: Final = 16
"""Rows that may be large are read so many at a time."""


@dataclass(frozen=True)
class ResultPage(Generic[Item]):
    """A piece of a list, and how many items the whole list has."""

    items: list[Item]
    total: int


@dataclass(frozen=True)
class LazyResultPage(Generic[Item]):
    """The same of items that may be large: they are read as they are taken, while the transaction lasts."""

    items: Iterator[Item]
    total: int


class RowMapping(Generic[T]):
    """How to read one dataclass from a table: select `columns`, then `build` each row (or the part of it).
    `names` are the columns' and the fields'."""

    def __init__(self, kind: type[T], table: sa.Table) -> None:
        self._kind = kind
        self.names: tuple[str, ...] = tuple(field.name for field in fields(kind))
        self.columns: tuple[sa.Column[Any], ...] = tuple(table.c[name] for name in self.names)
        self._table = table

    def build(self, row: Sequence[Any]) -> T:
        """The dataclass from values in the order of `columns`."""
        return self._kind(**dict(zip(self.names, row, strict=True)))

    def each_of(self, conn: sa.Connection, ids: Sequence[str]) -> Iterator[T]:
        """Those that have these ids, in their order, read some at a time as they are taken. The ids come from a page of
        ids alone: to skip the rows before a page costs what they hold, to skip their ids next to nothing."""
        query = sa.select(self._table.c.id, *self.columns).where(
            self._table.c.id.in_(sa.bindparam("ids", expanding=True))
        )
        for at in range(0, len(ids), BATCH):
            some = ids[at : at + BATCH]
            found = {row[0]: self.build(row[1:]) for row in conn.execute(query, {"ids": some})}
            yield from (found[each] for each in some if each in found)
