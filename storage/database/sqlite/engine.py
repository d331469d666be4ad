"""The connections of a SQLite database: one writes, several read."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, TypeVar

import sqlalchemy as sa

from config.errors import StartupError
from storage.database.errors import not_open
from storage.database.group_commit import GroupCommit
from storage.database.read_pool import ReadPool, ReadPriority
from storage.database.sqlite import wal
from storage.database.sqlite.change_counter import ChangeCounter
from storage.database.sqlite.connection_thread import READ, WRITE, ConnectionThread
from storage.database.sqlite.migrate import migrate

READERS: Final = 3
"""Shared read connections, each with a thread. With more of them they would wait for the GIL. A further connection is
for reads of calls."""

T = TypeVar("T")


class SqliteEngine:
    """A database file. Writes run one at a time, also among processes."""

    def __init__(self, path: Path, node: str | None = None) -> None:
        self._path: Final = path
        self._node: Final = node
        self._commits: GroupCommit | None = None
        self._readers: ReadPool | None = None
        self._threads: list[ConnectionThread] = []
        self._changes: ChangeCounter | None = None
        self.on_change: Callable[[frozenset[str] | None], None] = lambda _: None
        self.on_reconnect: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Create the file when it is absent, and migrate it. Raises `StartupError`."""
        await asyncio.to_thread(migrate, self._path)
        try:
            self._commits = GroupCommit((await self._open_thread(WRITE)).run_group)
            calls, *shared = [await self._open_thread(READ) for _ in range(1 + READERS)]
            self._readers = ReadPool(shared, calls, not_open)
            self._changes = await asyncio.to_thread(ChangeCounter, self._path)
        except BaseException:
            await self.close()
            raise

    async def _open_thread(self, begin: str) -> ConnectionThread:
        thread = ConnectionThread(self._path, begin, self._node)
        try:
            await thread.open()
        except sqlite3.Error as error:
            raise StartupError(f"the database {self._path} cannot be used: {error}") from error
        self._threads.append(thread)
        return thread

    async def close(self) -> None:
        """Close every connection, after its pending work."""
        threads, self._threads = self._threads, []
        commits, self._commits = self._commits, None
        readers, self._readers = self._readers, None
        changes, self._changes = self._changes, None
        async with AsyncExitStack() as closing:
            if changes is not None:
                closing.push_async_callback(asyncio.to_thread, changes.close)
            for thread in threads:
                closing.push_async_callback(thread.close)
            if readers is not None:
                closing.push_async_callback(readers.close)
            if commits is not None:
                await commits.wait_idle()

    @property
    def waiting_writes(self) -> int:
        """As `Database.waiting_writes`."""
        return 0 if self._commits is None else self._commits.waiting

    def change_number(self) -> int | None:
        """Returns another number after each commit, also of other processes; None when it cannot be read."""
        return None if self._changes is None else self._changes.number()

    async def checkpoint(self) -> bool:
        """As `Database.checkpoint`."""
        return await asyncio.to_thread(wal.checkpoint, self._path)

    async def truncate_log(self) -> bool:
        """As `Database.truncate_log`."""
        return await asyncio.to_thread(wal.truncate, self._path)

    async def read(self, work: Callable[[sa.Connection], T], owner: str | None, priority: ReadPriority) -> T:
        """As `Database.read`."""
        if self._readers is None:
            raise not_open()
        return await self._readers.read(work, owner, priority)

    async def write(
        self, work: Callable[[sa.Connection], T], owner: str | None, lock: str | None, deferrable: bool
    ) -> T:
        """As `Database.write`."""
        if self._commits is None:
            raise not_open()
        return await self._commits.write(work, owner=owner, deferrable=deferrable)
