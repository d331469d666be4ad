"""Notifications of PostgreSQL, by which nodes learn that rows have changed (`LISTEN`, `NOTIFY`)."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

CHANNEL: Final = "trunkline_changes"


def notify(conn: sa.Connection, table: str) -> None:
    """Tell all nodes, when the transaction commits, that rows of this table have changed; for changes of which no
    trigger tells."""
    conn.execute(sa.select(sa.func.pg_notify(CHANNEL, table)))
