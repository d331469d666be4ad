"""Checkpoints of the write-ahead log, which remove deleted rows from it. SQLite overwrites them in the database file
(`PRAGMA secure_delete`), but the log contains them until it is overwritten or truncated."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def checkpoint(path: Path) -> bool:
    """Copy as much of the log as possible into the database file. Blocks; readers and writers do not wait. Returns
    False when the disk cannot be written, which the next write reports."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.OperationalError:
            return False
        return True


def truncate(path: Path) -> bool:
    """Copy all of the log into the database file and truncate it. Blocks; writers wait only for the rest that the first
    pass has left. Returns False when a reader or a writer is active, or the disk cannot be written: then try later."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError:
            return False
        return not busy
