"""Copies of a database in one file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from config.errors import StartupError

_BUSY_S: Final = 60.0
_PAUSE_STEPS: Final = 1000
"""Steps of SQLite's virtual machine: some hundred rows."""


def create(database: Path, target: Path, pause: Callable[[], None]) -> None:
    """Write a snapshot of the database into `target`, which is absent or empty. For SQLite it is one long read, so the
    server can write meanwhile. It contains neither deleted rows nor their remains in free pages. `pause` is called
    periodically. Blocks. Raises `StartupError` when there is no database, it cannot be read, or the copy cannot be
    written."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_S)) as conn:
            conn.isolation_level = None
            # The schema is read before: `pause` is first called when the snapshot has begun.
            conn.execute("SELECT count(*) FROM sqlite_schema")
            conn.set_progress_handler(pause, _PAUSE_STEPS)
            conn.execute("VACUUM INTO ?", (str(target),))
    except sqlite3.Error as error:
        raise StartupError(f"the database {database} cannot be copied: {error}") from error
