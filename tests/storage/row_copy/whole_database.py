"""A database with rows in every table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from storage.row_copy.copied_tables import CopiedColumn, CopiedTable, Row, Step, Value, steps
from storage.row_copy.sqlite_side import SqliteSide
from storage.tables import metadata
from tests import database_template

ROWS = 7
"""Rows of each table."""


def fill(path: Path) -> None:
    """Creates the file, with `ROWS` rows in every table whose references fit. Calls refer to later ones."""
    path.write_bytes(database_template.image())
    with closing(SqliteSide(path)) as side, side.transaction():
        for step in steps():
            if not step.only_later:
                side.insert(Step(step.table), list(_rows(step.table)))


def _rows(table: CopiedTable) -> Iterator[Row]:
    known = metadata.tables.get(table.name)
    for number in range(1, ROWS + 1):
        yield tuple(_value(each, None if known is None else known.c[each.name], number) for each in table.columns)


def _value(column: CopiedColumn, known: sa.Column[Any] | None, number: int) -> Value:
    if column.name == "parent_call_id" and known is not None and known.table.name == "calls":
        return f"key {number + 1}" if number < ROWS else None
    is_key = known is None or known.primary_key or bool(known.foreign_keys) or known.unique
    if not is_key and known is not None and known.nullable and number % 2:
        return None
    match column.kind:
        case "text":
            is_short = known is None or getattr(known.type, "length", None)
            return f"key {number}" if is_key or is_short else f"\t\\N ü \U0001f600\n{number}"
        case "json":
            return '{"text": "\\u0000\\ud83d", "number": 1.0, "list": [1,  2]}'
        case "integer":
            return number
        case "float":
            return number / 3
        case "boolean":
            return number % 2 == 0
        case "bytes":
            return bytes([0, 255, 92, number % 256])
