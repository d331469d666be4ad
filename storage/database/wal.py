"""What deleted rows leave on the disk. SQLite overwrites them in the database's file (`PRAGMA secure_delete`), but the
write-ahead log beside it holds them until it is written over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def checkpoint(path: Path) -> bool:
    """Bring what can be of the log into the database's file. Blocks; nobody who reads or writes waits for it. False
    when the disk takes nothing now: whoever writes next is told why."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.OperationalError:
            return False
        return True


def truncate(path: Path) -> bool:
    """Bring all of the log into the database's file and cut it to nothing. Blocks; who writes meanwhile waits for what
    little the first round has left. False when somebody reads or writes just now, or
    the disk takes nothing: then it is to be tried later."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError:
            return False
        return not busy
