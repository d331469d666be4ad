"""SQL functions whose names differ between the engines."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class position_of(GenericFunction[int]):
    """`position_of(text, part)`: the position of a part of a text, from 1 on; 0: it has no such part. Takes any
    characters, unlike LIKE."""

    type = sa.Integer()
    inherit_cache = True


@compiles(position_of, "sqlite")
def _sqlite(element: position_of, compiler: Any, **options: Any) -> str:
    return f"instr({compiler.process(element.clauses, **options)})"


@compiles(position_of, "postgresql")
def _postgresql(element: position_of, compiler: Any, **options: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **options)})"
