"""The rows of a PostgreSQL database at one moment, in a file of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from config.errors import StartupError
from storage.database.sqlite.migrate import migrate
from storage.row_copy.opening import open_source
from storage.row_copy.row_copy import copy_rows
from storage.row_copy.sqlite_side import SqliteSide

_BESIDE: Final = ("-start", "-wal", "-shm", "-journal")
"""Suffixes of files that a migration, or a killed process, has left beside the file."""


def create(url: sa.URL, target: Path, pause: Callable[[], None]) -> None:
    """Write all rows into `target`, which is absent or empty. Servers write to the database meanwhile. `pause` is
    called periodically. Blocks. Raises `StartupError`."""
    with open_source(url, hold=False) as source:
        _remove_files_beside(target)
        try:
            migrate(target)
            with closing(SqliteSide(target)) as side:
                side.make_scratch()
                with side.transaction():
                    copy_rows(source, side, lambda *_: pause())
        except sqlite3.Error as error:
            raise StartupError(f"the database cannot be copied to {target}: {error}") from error
        finally:
            _remove_files_beside(target)


def _remove_files_beside(path: Path) -> None:
    for suffix in _BESIDE:
        Path(f"{path}{suffix}").unlink(missing_ok=True)
