"""Column types of all tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from config.clock import whole_ms

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UtcTime(TypeDecorator[datetime]):
    """An aware `datetime`, stored as whole milliseconds since 1970 UTC."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """To milliseconds."""
        return None if value is None else (whole_ms(value) - EPOCH) // timedelta(milliseconds=1)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """From milliseconds."""
        return None if value is None else EPOCH + timedelta(milliseconds=value)


MILLIONTH: Final = Decimal("0.000001")
"""The smallest amount of money."""


class Money(TypeDecorator[Decimal]):
    """An amount in the currency of the balances, stored as whole millionths, so that sums are exact. Takes any number,
    rounded to the nearest millionth."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | float | None, dialect: Dialect) -> Any:
        """To millionths."""
        return None if value is None else int(rounded_money(value) / MILLIONTH)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Decimal | None:
        """From millionths."""
        return None if value is None else value * MILLIONTH


def rounded_money(value: Decimal | float) -> Decimal:
    """Returns the number rounded to the nearest millionth by its decimal notation; halves away from zero."""
    return Decimal(str(value)).quantize(MILLIONTH, ROUND_HALF_UP)


Id = sa.String(36)
metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def organization_column(*, nullable: bool = False, primary_key: bool = False) -> sa.Column[str]:
    """Returns the column of the owning organization."""
    owner = sa.ForeignKey("organizations.id", ondelete="CASCADE")
    return sa.Column("organization_id", Id, owner, nullable=nullable, primary_key=primary_key)


def partial_index(name: str, *columns: str, where: str) -> sa.Index:
    """Returns an index of the rows with the condition `where`, SQL of both engines."""
    return sa.Index(name, *columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


_COLUMN_TYPES: Final[dict[Any, sa.types.TypeEngine[Any]]] = {
    bool: sa.Boolean(),
    int: sa.Integer(),
    float: sa.Float(),
    str: sa.String(),
    Literal: sa.String(),
    list: sa.JSON(none_as_null=True),
}


def columns_of(kind: type[DataclassInstance]) -> Iterator[sa.Column[Any]]:
    """Yields a column for each field of a dataclass: its type follows from the field's annotation, `X | None` is
    nullable, and a text whose name ends in `_id` is an `Id`. Raises KeyError if the annotation has no column type."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        hint, nullable = _without_none(hints[each.name])
        column_type = _COLUMN_TYPES[get_origin(hint) or hint]
        if each.name.endswith("_id"):
            column_type = Id
        yield sa.Column(each.name, column_type, nullable=nullable)


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Returns the annotation without `None`, and True if `None` was part of it."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    (rest,) = (each for each in get_args(hint) if each is not NoneType)
    return rest, True
