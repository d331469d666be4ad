"""Copies of the database from before its migrations, for the way back to the previous version.

They hold the database alone: migrations change no other file."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from pathlib import Path
from typing import Final

import structlog

from config.clock import utc_now
from config.errors import StartupError
from storage.database import file_permissions
from storage.database.sqlite import database_copy

FOLDER: Final = "upgrade-backups"
"""The folder beside the database."""
KEPT: Final = 3
"""As many of the newest copies are kept at most."""
KEPT_S: Final = 14 * 86_400.0
"""How long a copy is kept, seconds: it holds data that is deleted meanwhile."""
PRUNE_EVERY_S: Final = 3600.0
SPACE_FACTOR: Final = 2
"""Free space that an upgrade needs, in sizes of the database: for the copy, and for pages that migrations change."""
RESERVE_BYTES: Final = 64 * 1024 * 1024
_PARTIAL: Final = ".partial"

_log = structlog.get_logger()


def create(database: Path, revision: str) -> Path:
    """Copy the database, which is at this revision, and return the copy's path. The caller holds the migration lock.
    Blocks. Raises `StartupError` if the disk has too little space for the copy and the migration, and `OSError`."""
    folder = database.parent / FOLDER
    file_permissions.make_folder(folder)
    _own_as(folder, database.parent)
    prune(database, time.time(), KEPT - 1)  # each start that was killed during a migration has left a copy
    _check_space(database)
    path = folder / f"{database.stem}-{revision}-{utc_now():%Y%m%dT%H%M%SZ}.db"
    partial = folder / f"{database.stem}{_PARTIAL}"
    partial.unlink(missing_ok=True)  # of a start that was killed
    file_permissions.make_file(partial)
    try:
        database_copy.create(database, partial, lambda: None)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def newest(database: Path) -> Path | None:
    """The newest copy; None if there is none."""
    return next(iter(_copies(database)), None)


def prune(database: Path, now_s: float, kept: int = KEPT) -> list[Path]:
    """Remove copies that are too old at this time (Unix time, seconds), or older than the newest `kept`; returns them.
    Blocks."""
    copies = _copies(database)
    expired = [path for place, path in enumerate(copies) if place >= kept or path.stat().st_mtime < now_s - KEPT_S]
    for path in expired:
        path.unlink(missing_ok=True)
    return expired


async def prune_periodically(database: Path) -> None:
    """`prune` at once and every hour, until cancelled."""
    while True:
        try:
            for path in await asyncio.to_thread(prune, database, time.time()):
                _log.info("upgrade.backup_removed", path=str(path))
        except OSError as error:
            _log.warning("upgrade.backup_not_removed", error=str(error))
        await asyncio.sleep(PRUNE_EVERY_S)


def _copies(database: Path) -> list[Path]:
    """The copies of this database, newest first."""
    name = re.compile(rf"{re.escape(database.stem)}-\w+-([0-9]{{8}}T[0-9]{{6}}Z)\.db")
    found = {path: match[1] for path in (database.parent / FOLDER).glob("*.db") if (match := name.fullmatch(path.name))}
    return sorted(found, key=found.__getitem__, reverse=True)


def _check_space(database: Path) -> None:
    wal = Path(f"{database}-wal")
    size = database.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
    needed, free = SPACE_FACTOR * size + RESERVE_BYTES, shutil.disk_usage(database.parent).free
    if free < needed:
        raise StartupError(
            f"the upgrade of the database {database} needs {needed / 1e6:,.0f} MB of free space for a backup and the "
            f"migration, and the disk has {free / 1e6:,.0f} MB: make room, nothing was changed"
        )


def _own_as(folder: Path, parent: Path) -> None:
    """Give a folder that root has created to the owner of its parent, whose server uses it later."""
    if os.geteuid() == 0:
        owner = parent.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
