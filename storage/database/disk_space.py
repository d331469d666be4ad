"""Disk space: probes whether the database and the folders of the data directory can be written, and compares the free
space with the reserve for calls and webhooks."""

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
from storage.database.database import Database
from storage.database.errors import DISK_FULL, StorageUnavailable

MIN_PROBE_INTERVAL_S: Final = 2.0
"""A probe is not repeated within this time, seconds."""
PROBE_EVERY_S: Final = 15.0
"""Interval of probes while no disk is full, seconds."""
WRITE_TIMEOUT_S: Final = 5.0
"""How long the database may take for the write of a probe, seconds."""
PROBE_BYTES: Final = 256 * 1024
"""Written to each folder, and removed at once."""
MAX_RESERVE_SHARE: Final = 10
"""The reserve is at most the disk's size divided by this."""
FOLDERS: Final = ("", "recordings", "knowledge", "sounds")
"""Folders of the data directory; each may be on a separate disk."""
MIB: Final = 1 << 20
_PROBE: Final = "write_probe"

_log = structlog.get_logger()


class DiskSpace:
    """Probes the disks of the data directory. `on_space_freed` is called on the event loop when a full disk has space
    again. A full disk is logged once, and once when it has space again; so is a disk with less free space than the
    reserve of `reserve_mb` MiB."""

    def __init__(
        self, database: Database, data_dir: Path, reserve_mb: int, on_space_freed: Callable[[], None] = lambda: None
    ) -> None:
        self.on_space_freed = on_space_freed
        self._database = database
        self._data_dir = data_dir
        self._reserve = reserve_mb * MIB
        self._result: Mapping[str, str | None] = {}
        self._probed_at_s = float("-inf")
        self._full_since_s: float | None = None
        self._low_reason: str | None = None
        self._probe_lock = asyncio.Lock()
        self._disk_filled = asyncio.Event()
        database.on_disk_full = self._on_disk_full

    async def probe(self) -> Mapping[str, str | None]:
        """Returns `database` and `disk`: None when the write succeeded, else why it failed. The result is at most
        `MIN_PROBE_INTERVAL_S` old."""
        async with self._probe_lock:
            if time.monotonic() - self._probed_at_s >= MIN_PROBE_INTERVAL_S:
                await self._probe()
            return self._result

    async def run(self) -> None:
        """Probe until cancelled, more often while the disk is full."""
        while True:
            self._disk_filled.clear()
            await self.probe()
            wait_s = PROBE_EVERY_S if self._full_since_s is None else MIN_PROBE_INTERVAL_S
            try:
                async with asyncio.timeout(wait_s):
                    await self._disk_filled.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(MIN_PROBE_INTERVAL_S)

    @property
    def rejection_reason(self) -> str | None:
        """Why the API rejects writes, None while the reserve is free; as of the last probe."""
        return self._low_reason

    async def check_reserve(self, size: int) -> None:
        """Raises `InsufficientStorage` when `size` bytes more would use the reserve."""
        if await asyncio.to_thread(self._reserve_problem, size) is not None:
            raise InsufficientStorage("The server's disk is almost full: nothing more can be stored")

    async def _probe(self) -> None:
        database = await self._database_problem()
        disk = await asyncio.to_thread(self._folder_problem)
        self._result = {"database": database, "disk": disk}
        self._probed_at_s = time.monotonic()
        full = [each for each in (disk, database) if each is not None and DISK_FULL in each]
        if full:
            self._note_full(full[0])
        elif self._full_since_s is not None:
            _log.info("disk.has_room", full_s=round(time.monotonic() - self._full_since_s))
            self._full_since_s = None
            self.on_space_freed()
        self._note_low(await asyncio.to_thread(self._reserve_problem))

    def _note_full(self, cause: str) -> None:
        if self._full_since_s is None:
            self._full_since_s = time.monotonic()
            remedy = "make room: calls go on, and what cannot be stored now waits in memory"
            _log.error("disk.full", cause=cause, data_dir=str(self._data_dir), remedy=remedy)

    def _on_disk_full(self) -> None:
        """A transaction met a full disk."""
        if self._full_since_s is None:
            self._probed_at_s = float("-inf")  # the last result is outdated
        self._note_full(DISK_FULL)
        self._disk_filled.set()

    def _note_low(self, why: str | None) -> None:
        if why is not None and self._low_reason is None:
            _log.warning("disk.low", why=why, remedy="make room: the API stores nothing new until then")
        elif why is None and self._low_reason is not None:
            _log.info("disk.low_over")
        self._low_reason = why

    def _reserve_problem(self, size: int = 0) -> str | None:
        """Why `size` bytes more would use the reserve; None when they would not. Blocks."""
        for folder in self._disks():
            free, reserve = self._free(folder)
            if free - size < reserve:
                return f"less than {reserve // MIB or 1} MiB are free: {folder}"
        return None

    async def _database_problem(self) -> str | None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._database.write(_write_row, lock=_PROBE)
        except StorageUnavailable as error:
            return error.cause
        except TimeoutError:
            return f"it has not taken a write within {WRITE_TIMEOUT_S:g} s"
        return None

    def _folder_problem(self) -> str | None:
        """Why a file cannot be written; None when it can. Blocks."""
        for folder in self._disks():
            try:
                _write_file(folder)
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                return f"{DISK_FULL}: {folder}" if full else f"{folder} cannot be written: {error.strerror}"
        return None

    def _disks(self) -> Iterable[Path]:
        """The existing folders, one for each disk."""
        found: dict[int, Path] = {}
        for name in FOLDERS:
            folder = self._data_dir / name
            try:
                found.setdefault(folder.stat().st_dev, folder)
            except OSError:
                continue
        return found.values()

    def _free(self, folder: Path) -> tuple[int, int]:
        """Free bytes, and the reserve of that disk."""
        statistics = os.statvfs(folder)
        return statistics.f_bavail * statistics.f_frsize, min(
            self._reserve, statistics.f_blocks * statistics.f_frsize // MAX_RESERVE_SHARE
        )


def _write_file(folder: Path) -> None:
    """Write a file without a name. Raises `OSError`."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        rest = memoryview(bytes(PROBE_BYTES))
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def _write_row(conn: sa.Connection) -> None:
    """Write a new value, because SQLite does not write an unchanged one."""
    value = str(time.time_ns())
    facts = tables.facts
    if conn.execute(sa.update(facts).where(facts.c.name == _PROBE).values(value=value)).rowcount == 0:
        conn.execute(sa.insert(facts).values(name=_PROBE, value=value))
