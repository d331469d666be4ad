"""Maps rows to frozen dataclasses: a dataclass's fields name the columns that it is read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import sqlalchemy as sa

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Item = TypeVar("Item")
BATCH_ROWS: Final = 16
"""Rows that may be large are read in batches of this size."""


@dataclass(frozen=True)
class ResultPage(Generic[Item]):
    """A page of a list, and the length of the whole list."""

    items: list[Item]
    total: int


@dataclass(frozen=True)
class LazyResultPage(Generic[Item]):
    """A page of items that may be large: they are read as the iterator is consumed, within the transaction."""

    items: Iterator[Item]
    total: int


class RowMapping(Generic[T]):
    """Reads one dataclass from a table: select `columns`, then `build` each row (or the part of it). `names` are those
    of the columns and the fields."""

    def __init__(self, kind: type[T], table: sa.Table) -> None:
        self._kind = kind
        self.names: tuple[str, ...] = tuple(field.name for field in fields(kind))
        self.columns: tuple[sa.Column[Any], ...] = tuple(table.c[name] for name in self.names)
        self._table = table

    def build(self, row: Sequence[Any]) -> T:
        """Returns the dataclass with values in the order of `columns`."""
        return self._kind(**dict(zip(self.names, row, strict=True)))

    def iter_by_ids(self, conn: sa.Connection, ids: Sequence[str]) -> Iterator[T]:
        """Yields the rows of these ids, in their order, read in batches as the iterator is consumed. The ids come from
        a query for ids alone, because skipping whole rows before a page costs what they hold."""
        query = sa.select(self._table.c.id, *self.columns).where(
            self._table.c.id.in_(sa.bindparam("ids", expanding=True))
        )
        for at in range(0, len(ids), BATCH_ROWS):
            some = ids[at : at + BATCH_ROWS]
            found = {row[0]: self.build(row[1:]) for row in conn.execute(query, {"ids": some})}
            yield from (found[each] for each in some if each in found)
