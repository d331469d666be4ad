"""Lost database: detects a database that is missing although files of an installation exist."""

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


def check_not_lost(data_dir: Path, database: Path, secret_key: Path) -> None:
    """Raises `StartupError` when the database is missing or empty although the data directory has files of an
    installation, because a server with a new database would silently answer no calls. Blocks."""
    tables, rows = _content(database)
    if rows:
        return
    folders = _OF_ORGANIZATIONS if tables else (*_OF_ORGANIZATIONS, "sounds")
    found = [data_dir / name for name in folders if _has_files(data_dir / name)]
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
    """Returns two flags: the database has its tables, and an organization. Both are True for an unreadable file, which
    the migration reports."""
    if not database.exists() or database.stat().st_size == 0:
        return False, False
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", _BUSY_S, uri=True)) as conn:
            if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'organizations'").fetchone() is None:
                return False, False
            return True, conn.execute("SELECT 1 FROM organizations LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return True, True


def _has_files(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))
