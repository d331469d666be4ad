"""The node that a connection belongs to. In SQLite every call is of this server; in PostgreSQL nodes share the tables,
and each runs and closes its own calls."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa


def name_of(conn: sa.Connection) -> str | None:
    """Returns the name of the node, None if it has none, as in command line tools."""
    name: str | None = conn.info.get("node")
    return name


def filter_of(conn: sa.Connection) -> str | None:
    """Returns the name of the node whose rows are this server's own; None: all are."""
    return None if conn.dialect.name == "sqlite" else name_of(conn)


def is_own(column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Returns the condition that a row is of the node in the parameter `own_node`; None: any is."""
    own = sa.bindparam("own_node", type_=sa.String())
    return sa.or_(own.is_(None), column == own)


def is_of(column: sa.ColumnElement[Any], nodes: Collection[str] | None) -> sa.ColumnElement[bool]:
    """Returns the condition that a row is of one of these nodes; None: any is."""
    return sa.true() if nodes is None else column.in_(nodes)
