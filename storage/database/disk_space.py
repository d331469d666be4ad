"""Whether what is stored has room: a write is tried in the database and in the folders of the data directory, and the
free space is compared with the reserve that is left to calls and webhooks."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import sqlalchemy as sa
import structlog

from config.errors import InsufficientStorage
from storage import tables
from storage.database.database import DISK_FULL, Database, StorageUnavailable

MIN_PROBE_INTERVAL_S: Final = 2.0
"""A look is not repeated within this time, whoever asks."""
PROBE_EVERY_S: Final = 15.0
"""Between two looks while all is well."""
WRITE_TIMEOUT_S: Final = 5.0
"""How long the database may take for the write of a look."""
PROBE_BYTES: Final = 256 * 1024
"""Written to each folder, and gone at once."""
MAX_RESERVE_SHARE: Final = 10
"""The reserve is at most one part in so many of the disk."""
FOLDERS: Final = ("", "recordings", "knowledge", "sounds")
"""Of the data directory: each may be a disk of its own."""
MIB: Final = 1 << 20
_PROBE: Final = "write_probe"

_log = structlog.get_logger()


class DiskSpace:
    """`run` looks from time to time until it is cancelled. `on_room` is called on the event loop when a full disk has
    room again. The log tells of a full disk once, and once of its end; so it does of a disk that is down to its
    reserve, of `reserve_mb` MiB."""

    def __init__(
        self, database: Database, data_dir: Path, reserve_mb: int, on_room: Callable[[], None] = lambda: None
    ) -> None:
        self.on_room = on_room
        self._database = database
        self._data_dir = data_dir
        self._reserve = reserve_mb * MIB
        self._found: Mapping[str, str | None] = {}
        self._looked_at_s = float("-inf")
        self._full_since_s: float | None = None
        self._low: str | None = None
        self._looking = asyncio.Lock()
        self._news = asyncio.Event()
        database.on_full = self._on_disk_full

    async def probe(self) -> Mapping[str, str | None]:
        """`database` and `disk`: None where a write went well, else why it did not. The write is at most
        `MIN_PROBE_INTERVAL_S` old."""
        async with self._looking:
            if time.monotonic() - self._looked_at_s >= MIN_PROBE_INTERVAL_S:
                await self._probe()
            return self._found

    async def run(self) -> None:
        """Look, more often while the disk is full."""
        while True:
            self._news.clear()
            await self.probe()
            wait_s = PROBE_EVERY_S if self._full_since_s is None else MIN_PROBE_INTERVAL_S
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(MIN_PROBE_INTERVAL_S)

    @property
    def why_writes_are_rejected(self) -> str | None:
        """None while there is room beside the reserve; as it was at the last look."""
        return self._low

    async def check_reserve(self, size: int) -> None:
        """Whether so many bytes more leave the reserve untouched. Raises `InsufficientStorage`."""
        if await asyncio.to_thread(self._reserve_problem, size) is not None:
            raise InsufficientStorage("The server's disk is almost full: nothing more can be stored")

    async def _probe(self) -> None:
        database = await self._database_problem()
        disk = await asyncio.to_thread(self._folder_problem)
        self._found = {"database": database, "disk": disk}
        self._looked_at_s = time.monotonic()
        full = [each for each in (disk, database) if each is not None and DISK_FULL in each]
        if full:
            self._note_full(full[0])
        elif self._full_since_s is not None:
            _log.info("disk.has_room", full_s=round(time.monotonic() - self._full_since_s))
            self._full_since_s = None
            self.on_room()
        self._note_low(await asyncio.to_thread(self._reserve_problem))

    def _note_full(self, cause: str) -> None:
        if self._full_since_s is None:
            self._full_since_s = time.monotonic()
            remedy = "make room: calls go on, and what cannot be stored now waits in memory"
            _log.error("disk.full", cause=cause, data_dir=str(self._data_dir), remedy=remedy)

    def _on_disk_full(self) -> None:
        """A transaction met a full disk."""
        if self._full_since_s is None:
            self._looked_at_s = float("-inf")  # what was seen before counts no more
        self._note_full(DISK_FULL)
        self._news.set()

    def _note_low(self, why: str | None) -> None:
        if why is not None and self._low is None:
            _log.warning("disk.low", why=why, remedy="make room: the API stores nothing new until then")
        elif why is None and self._low is not None:
            _log.info("disk.low_over")
        self._low = why

    def _reserve_problem(self, size: int = 0) -> str | None:
        """Why so many bytes more are too many; None when they are not. Blocks."""
        for folder in self._disks():
            free, reserve = self._free(folder)
            if free - size < reserve:
                return f"less than {reserve // MIB or 1} MiB are free: {folder}"
        return None

    async def _database_problem(self) -> str | None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._database.write(_write_row)
        except StorageUnavailable as trouble:
            return trouble.cause
        except TimeoutError:
            return f"it has not taken a write within {WRITE_TIMEOUT_S:g} s"
        return None

    def _folder_problem(self) -> str | None:
        """Why a file cannot be written; None when it can be. Blocks."""
        for folder in self._disks():
            try:
                _write_file(folder)
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                return f"{DISK_FULL}: {folder}" if full else f"{folder} cannot be written: {error.strerror}"
        return None

    def _disks(self) -> Iterable[Path]:
        """The folders that there are, one of each disk."""
        found: dict[int, Path] = {}
        for name in FOLDERS:
            folder = self._data_dir / name
            try:
                found.setdefault(folder.stat().st_dev, folder)
            except OSError:
                continue
        return found.values()

    def _free(self, folder: Path) -> tuple[int, int]:
        """Bytes that are free for us, and the reserve of that disk."""
        facts = os.statvfs(folder)
        return facts.f_bavail * facts.f_frsize, min(self._reserve, facts.f_blocks * facts.f_frsize // MAX_RESERVE_SHARE)


def _write_file(folder: Path) -> None:
    """A file that no name leads to. Raises `OSError`."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        rest = memoryview(bytes(PROBE_BYTES))
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def _write_row(conn: sa.Connection) -> None:
    """Another value than before: an equal one would not be written."""
    value = str(time.time_ns())
    facts = tables.facts
    if conn.execute(sa.update(facts).where(facts.c.name == _PROBE).values(value=value)).rowcount == 0:
        conn.execute(sa.insert(facts).values(name=_PROBE, value=value))
