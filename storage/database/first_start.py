"""Whether a database without data is one of a first start, or one that was lost."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from config.errors import StartupError

_OF_ORGANIZATIONS: Final = ("recordings", "knowledge")
_BUSY_S: Final = 10.0


def check(data_dir: Path, database: Path, secret_key: Path) -> None:
    """`StartupError` when the database is missing or empty though files of an installation lie in the data directory: a
    server that began anew beside them would answer nobody's calls, and nobody would be told why. Blocks."""
    tables, rows = _content(database)
    if rows:
        return
    folders = _OF_ORGANIZATIONS if tables else (*_OF_ORGANIZATIONS, "sounds")
    found = [data_dir / name for name in folders if _holds_files(data_dir / name)]
    if not tables and secret_key.parent == data_dir and secret_key.exists():
        found.append(secret_key)
    if found:
        state = "holds no organization" if tables else "is empty" if database.exists() else "is missing"
        raise StartupError(
            f"the database {database} {state}, and there are files of one: {', '.join(map(str, found))}. Put the "
            "database back (`trunkline restore BACKUP --replace`) or name it in [database] url; to start anew, move "
            "these away"
        )


def _content(database: Path) -> tuple[bool, bool]:
    """Whether it has our tables, and an organization in them. What cannot be read is somebody else's to tell."""
    if not database.exists() or database.stat().st_size == 0:
        return False, False
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", _BUSY_S, uri=True)) as conn:
            if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'organizations'").fetchone() is None:
                return False, False
            return True, conn.execute("SELECT 1 FROM organizations LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return True, True


def _holds_files(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))
