"""Between rows and frozen dataclasses: a dataclass's fields name the columns that it is read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import sqlalchemy as sa

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """A piece of a list, and how many items the whole list has."""

    items: list[Item]
    total: int


class Shape(Generic[T]):
    """How to read one dataclass from a table: select `columns`, then `build` each row (or the part of it).
    `names` are the columns' and the fields'."""

    def __init__(self, kind: type[T], table: sa.Table) -> None:
        self._kind = kind
        self.names: tuple[str, ...] = tuple(field.name for field in fields(kind))
        self.columns: tuple[sa.Column[Any], ...] = tuple(table.c[name] for name in self.names)

    def build(self, row: Sequence[Any]) -> T:
        """The dataclass from values in the order of `columns`."""
        return self._kind(**dict(zip(self.names, row, strict=True)))
