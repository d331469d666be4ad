"""Read-only access to a database file that may belong to another process or another version."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from config.errors import StartupError
from storage.database.migrations import require_head

T = TypeVar("T")
_TIMEOUT_S = 10.0


def read_only(path: Path, work: Callable[[sa.Connection], T]) -> T:
    """Returns the result of `work`, run in a read-only transaction with a consistent snapshot. Runs no migration:
    raises `StartupError` for a file of another revision, and for an unreadable one. Raises what `work` raises.
    Blocks."""
    try:
        # Not mode=ro, which leaves the files of the write-ahead log behind.
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", _TIMEOUT_S, uri=True)) as raw:
            raw.execute("PRAGMA query_only=ON")
            _require_head_revision(raw, path)
            engine = sa.create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
            with engine.connect() as conn:
                conn.exec_driver_sql("BEGIN")
                return work(conn)
    except (sqlite3.Error, sa.exc.DBAPIError) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise StartupError(f"the database {path} cannot be read: {cause}") from error


def _require_head_revision(raw: sqlite3.Connection, path: Path) -> None:
    known = raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone() is not None
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone() if known else None
    require_head(None if row is None else str(row[0]), str(path))
