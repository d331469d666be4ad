"""Locks inside of a write transaction, for what is checked across organizations."""

from __future__ import annotations

import sqlalchemy as sa

from storage.database.postgresql import locks


def acquire(conn: sa.Connection, name: str) -> None:
    """Hold the lock of this name until the transaction ends, on all nodes. In SQLite writes run one at a time
    anyway."""
    if conn.dialect.name != "sqlite":
        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(locks.key_of(name))))
