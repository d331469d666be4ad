"""The connections of a PostgreSQL database: several write, several read, one listens for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, TypeVar

import sqlalchemy as sa

from config.errors import StartupError
from storage.database import database_url
from storage.database.errors import DatabaseAway, StorageUnavailable, not_open
from storage.database.postgresql.change_listener import ChangeListener
from storage.database.postgresql.connection_thread import ConnectionThread
from storage.database.postgresql.migrate import migrate
from storage.database.postgresql.outage import is_outage
from storage.database.postgresql.write_pool import WritePool
from storage.database.read_pool import ReadPool, ReadPriority

READERS: Final = 3
"""Shared read connections, each with a thread; a further one is for reads of calls."""
WRITERS: Final = 4
"""Write connections, each with a thread; the last idle one is left to heartbeats."""

T = TypeVar("T")


class PostgresqlEngine:
    """A database of a PostgreSQL server, which several nodes use at the same time."""

    def __init__(self, url: sa.URL, node: str | None = None) -> None:
        self._url: Final = url
        self._node: Final = node
        self._writers: WritePool | None = None
        self._readers: ReadPool | None = None
        self._threads: list[ConnectionThread] = []
        self._changes: ChangeListener | None = None
        self.on_change: Callable[[frozenset[str] | None], None] = lambda _: None
        self.on_reconnect: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Create the tables of an empty database, or migrate it, and connect. Raises `StartupError`."""
        await asyncio.to_thread(migrate, self._url)
        try:
            writers = [await self._open_thread(f"write {number}") for number in range(WRITERS)]
            readers = [await self._open_thread(f"read {number}") for number in range(1 + READERS)]
            self._writers = WritePool(writers)
            self._readers = ReadPool(readers[1:], readers[0], not_open)
            post = asyncio.get_running_loop().call_soon_threadsafe

            def on_change(tables: frozenset[str] | None) -> None:
                post(self._changed, tables)

            def on_reconnect() -> None:
                post(self._reconnected)

            self._changes = ChangeListener(self._url, on_change, on_reconnect)
            self._changes.start()
        except BaseException:
            await self.close()
            raise

    async def _open_thread(self, name: str) -> ConnectionThread:
        thread = ConnectionThread(self._url, name, self._node)
        self._threads.append(thread)
        try:
            await thread.open()
        except StorageUnavailable as error:
            kind = DatabaseAway if is_outage(error.__cause__) else StartupError
            raise kind(f"the database {database_url.shown(self._url)} cannot be used: {error.cause}") from error
        return thread

    async def close(self) -> None:
        """Close every connection, after its pending work."""
        threads, self._threads = self._threads, []
        writers, self._writers = self._writers, None
        readers, self._readers = self._readers, None
        changes, self._changes = self._changes, None
        async with AsyncExitStack() as closing:
            if changes is not None:
                closing.push_async_callback(asyncio.to_thread, changes.close)
            for thread in threads:
                closing.push_async_callback(thread.close)
            if readers is not None:
                closing.push_async_callback(readers.close)
            if writers is not None:
                await writers.wait_idle()

    def _changed(self, tables: frozenset[str] | None) -> None:
        if self._changes is not None:
            self.on_change(tables)

    def _reconnected(self) -> None:
        if self._changes is not None:
            for thread in self._threads:  # else the work that begins now could find it in a pause after a failure
                thread.connect_soon()
            self.on_reconnect()

    @property
    def waiting_writes(self) -> int:
        """As `Database.waiting_writes`."""
        return 0 if self._writers is None else self._writers.waiting

    def change_number(self) -> int | None:
        """Returns another number after each write of this process and each notification of another one."""
        if self._changes is None or self._writers is None:
            return None
        return self._changes.number + self._writers.commits

    async def checkpoint(self) -> bool:
        """As `Database.checkpoint`."""
        return True

    async def truncate_log(self) -> bool:
        """As `Database.truncate_log`."""
        return True

    async def read(self, work: Callable[[sa.Connection], T], owner: str | None, priority: ReadPriority) -> T:
        """As `Database.read`."""
        if self._readers is None:
            raise not_open()
        return await self._readers.read(work, owner, priority)

    async def write(
        self, work: Callable[[sa.Connection], T], owner: str | None, lock: str | None, deferrable: bool
    ) -> T:
        """As `Database.write`."""
        if self._writers is None:
            raise not_open()
        return await self._writers.write(work, owner, lock, deferrable)
