"""The database: a read or a write is a plain function that runs as a whole on the thread of a connection, so that a
transaction takes two thread switches, regardless of its statements. The engine is SQLite's or PostgreSQL's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa

from config.errors import StartupError
from storage.database import database_url
from storage.database.database_url import POSTGRESQL
from storage.database.errors import StorageUnavailable, not_open
from storage.database.postgresql import require_driver
from storage.database.read_pool import ReadPriority
from storage.database.sqlite.engine import SqliteEngine

T = TypeVar("T")
call_lock: ContextVar[str | None] = ContextVar("call_lock", default=None)
"""The organization of the call whose tasks run in this context: the lock of their writes, which change only rows of
that organization. No parameter, because every write of a call, in many files, would have to pass it on, and one that
lacked it would run alone and delay all others."""
transaction_guard: ContextVar[Callable[[sa.Connection], None] | None] = ContextVar("transaction_guard", default=None)
"""Begins each write transaction of the tasks that run in this context; it raises if they must not write any more. No
parameter, because the work that runs under a lease is written for a single server too, and one write without the guard
would go on after the lease is lost."""


class DatabaseEngine(Protocol):
    """The connections of an open database; see `Database`. Callbacks are called as those of `Database`."""

    on_change: Callable[[frozenset[str] | None], None]
    on_reconnect: Callable[[], None]

    async def open(self) -> None:
        """Migrate the database and connect."""

    async def close(self) -> None:
        """Close all connections, after their pending work."""

    @property
    def waiting_writes(self) -> int:
        """As `Database.waiting_writes`."""

    def change_number(self) -> int | None:
        """As `Database.change_number`."""

    async def checkpoint(self) -> bool:
        """As `Database.checkpoint`."""

    async def truncate_log(self) -> bool:
        """As `Database.truncate_log`."""

    async def read(self, work: Callable[[sa.Connection], T], owner: str | None, priority: ReadPriority) -> T:
        """As `Database.read`."""

    async def write(
        self, work: Callable[[sa.Connection], T], owner: str | None, lock: str | None, deferrable: bool
    ) -> T:
        """As `Database.write`."""


class OutageWait(Protocol):
    """What makes a transaction again while the server of the database is away."""

    async def __call__(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Returns the result of `attempt`, and raises what it raises for another reason."""


class Database:
    """The installation's database. A read sees a consistent snapshot; writes are serializable."""

    def __init__(self, url: str, node: str | None = None) -> None:
        """`url` in SQLAlchemy's form: `sqlite+aiosqlite:///path/to/file` or
        `postgresql+psycopg://user:password@host/database`. `node` is the name of this server, None in other programs
        (`storage.database.own_node`). Raises `StartupError` for any other URL, or without the driver."""
        self.url = database_url.parse(url)
        self.node: Final = node
        self._engine: DatabaseEngine
        if self.url.drivername == POSTGRESQL:
            require_driver()
            from storage.database.postgresql.engine import PostgresqlEngine  # imported late: its driver is optional

            self._engine = PostgresqlEngine(self.url, node)
        else:
            self._engine = SqliteEngine(self.path, node)
        self._is_open = False
        self._outage_wait: tuple[asyncio.Task[Any] | None, OutageWait] | None = None
        self.away_since_s: float | None = None
        """Since when its server does not answer, by the monotonic clock; None: its last transaction was answered."""

        self.on_disk_full: Callable[[], None] = lambda: None
        """Called on the event loop when a write meets a full disk."""
        self.on_change: Callable[[frozenset[str] | None], None] = lambda _: None
        """Called on the event loop within a second after any node has changed rows that servers keep in memory, with
        the names of the tables; None: changes may have been missed. SQLite, with one server, has no such calls."""

        self.on_reconnect: Callable[[], None] = lambda: None
        """Called on the event loop when PostgreSQL can be reached again after an outage."""

    @property
    def is_sqlite(self) -> bool:
        """True if the database is a file of SQLite; False: PostgreSQL."""
        return self.url.drivername != POSTGRESQL

    @property
    def path(self) -> Path:
        """The file of a SQLite database. Raises `StartupError` for PostgreSQL."""
        if not self.is_sqlite or self.url.database is None:
            raise StartupError("this works with a SQLite database only, and [database] url names PostgreSQL")
        return Path(self.url.database)

    @property
    def name(self) -> str:
        """The file, or the server with the database's name, for messages: it has no password."""
        return database_url.shown(self.url)

    @property
    def waiting_writes(self) -> int:
        """The number of writes of this process that have not begun."""
        return self._engine.waiting_writes

    async def open(self) -> None:
        """Create the tables of an empty database, and migrate it; safe for processes that do so at once. Raises
        `StartupError`."""
        await self._engine.open()
        self._is_open = True
        self._engine.on_change = lambda tables: self.on_change(tables)
        self._engine.on_reconnect = lambda: self.on_reconnect()

    async def close(self) -> None:
        """Close every connection, after its pending work. Every thread ends, even when another one fails or this is
        cancelled, because a remaining thread would keep the process alive."""
        self._is_open = False
        await self._engine.close()

    def wait_in_outages(self, wait: OutageWait) -> None:
        """Let `wait` make the transactions of the present task, which is starting the server. They run again after an
        outage, also if the first one was stored without an answer."""
        self._outage_wait = asyncio.current_task(), wait

    def change_number(self) -> int | None:
        """Returns another number after each commit of this process, and within a second after other processes have
        changed what servers keep in memory; None when it cannot be read. Never blocks."""
        return self._engine.change_number() if self._is_open else None

    async def checkpoint(self) -> bool:
        """Write the write-ahead log back to the database, as far as possible. Returns False when the disk cannot be
        written. PostgreSQL does so itself."""
        return await self._engine.checkpoint()

    async def truncate_log(self) -> bool:
        """Remove deleted rows from the write-ahead log. Returns False while a reader or a writer prevents it. The log
        of PostgreSQL is its administrator's."""
        return await self._engine.truncate_log()

    async def read(
        self, work: Callable[[sa.Connection], T], *, owner: str | None = None, priority: ReadPriority = "shared"
    ) -> T:
        """Returns the result of `work`, run on a thread in a read transaction with a consistent snapshot. `owner` is
        the organization of the request, None the server itself; owners take turns. The priority `calls` is for reads
        that a caller waits for: no other read delays them. Raises `StorageUnavailable`, and what `work` raises."""
        if not self._is_open:
            raise not_open()
        return await self._attempted(partial(self._engine.read, work, owner, priority))

    async def write(
        self,
        work: Callable[[sa.Connection], T],
        *,
        owner: str | None = None,
        lock: str | None = None,
        deferrable: bool = False,
    ) -> T:
        """Returns the result of `work`, run on a thread in a write transaction: committed and synced to disk when this
        returns, rolled back when `work` raises. Owners (as in `read`) take turns, each in the order of its calls, and
        waiting writes share a commit. `lock` is the organization whose rows the write reads and changes, by default
        the owner, or that of the call whose task writes (`call_lock`): in PostgreSQL its writes run one at a time, on
        all nodes; a write without a lock runs alone. In SQLite every write runs alone. `deferrable`: other writes go
        first. It runs to completion even when the caller is cancelled, and may run more than once, each time after a
        rollback. Raises `StorageUnavailable`, and what `work` and the `transaction_guard` raise."""
        if not self._is_open:
            raise not_open()
        if (guard := transaction_guard.get()) is not None:
            work = partial(_guarded, guard, work)
        try:
            lock = lock or owner or call_lock.get()
            return await self._attempted(partial(self._engine.write, work, owner, lock, deferrable))
        except StorageUnavailable as error:
            if error.disk_full:
                self.on_disk_full()
            raise

    async def _attempted(self, transaction: Callable[[], Coroutine[Any, Any, T]]) -> T:
        attempt = partial(self._watched, transaction)
        if self._outage_wait is None or self._outage_wait[0] is not asyncio.current_task():
            return await attempt()
        return await self._outage_wait[1](attempt)

    async def _watched(self, transaction: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Returns the result of a transaction, and notes whether the server has answered."""
        try:
            result = await transaction()
        except StorageUnavailable as error:
            if error.is_unreachable and self.away_since_s is None:
                self.away_since_s = time.monotonic()
            raise
        except Exception:
            self.away_since_s = None
            raise
        self.away_since_s = None
        return result


def _guarded(guard: Callable[[sa.Connection], None], work: Callable[[sa.Connection], T], conn: sa.Connection) -> T:
    guard(conn)
    return work(conn)
