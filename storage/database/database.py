"""The database: connections, transactions, errors that say what is wrong. A transaction is a plain function that runs
whole on a connection's thread: one trip there and back, whatever it does. SQLite now, elsewhere with the same calls."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import aiosqlite
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from config.errors import StartupError, Unavailable
from storage.database.change_counter import ChangeCounter
from storage.database.connection import connect
from storage.database.group_commit import GroupCommit, PendingWrite, WriteFailed
from storage.database.migrate import migrate
from storage.database.read_pool import Lane, ReadPool

BUSY_TIMEOUT_S: Final = 10.0
"""How long a statement waits for another process that writes."""
READERS: Final = 3
"""Connections for reading that all share; each is a thread. More of them would rather wait for the interpreter than
read. One more is for what calls wait for."""
MAX_GROUP_S: Final = 0.1
"""After so much time a commit takes no further writes: a caller who rings waits no longer for those of others."""

READ: Final = "BEGIN"
WRITE: Final = "BEGIN IMMEDIATE"

DISK_FULL: Final = "the disk is full"

T = TypeVar("T")
_UNAVAILABLE: Final = {
    sqlite3.SQLITE_FULL: DISK_FULL,
    sqlite3.SQLITE_BUSY: "the database is locked by another process",
    sqlite3.SQLITE_LOCKED: "the database is locked by another process",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_READONLY: "the database is read-only",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database",
}


class StorageUnavailable(Unavailable):
    """The database cannot do its work now (disk full, locked, ...); the transaction left nothing behind.
    `cause` says why, for the log; the message is for clients."""

    def __init__(self, cause: str) -> None:
        super().__init__("Service temporarily unavailable", retry_after_s=5)
        self.cause = cause

    @property
    def disk_full(self) -> bool:
        """There is no room; there may be later."""
        return self.cause == DISK_FULL

    def __str__(self) -> str:
        return f"storage: {self.cause}"


class Database:
    """The installation's database. Reads see one moment; a write is one transaction that runs alone."""

    def __init__(self, url: str) -> None:
        """`url` as SQLAlchemy takes it, `sqlite+aiosqlite:///path/to/file`. `StartupError` when it is none."""
        self.url, self.path = _parse_url(url)
        self._commits: GroupCommit | None = None
        self._readers: ReadPool | None = None
        self._threads: list[_ConnectionThread] = []
        self._changes: ChangeCounter | None = None
        self.on_full: Callable[[], None] = lambda: None
        """Called on the event loop when a write met a full disk."""

    async def open(self) -> None:
        """Make the file when there is none and bring its tables up to date, also beside other processes that do the
        same. `StartupError` when that cannot be."""
        await asyncio.to_thread(migrate, self.path)
        try:
            self._commits = GroupCommit((await self._opened(WRITE)).run_group)
            calls, *shared = [await self._opened(READ) for _ in range(1 + READERS)]
            self._readers = ReadPool(shared, calls, _not_open)
            self._changes = await asyncio.to_thread(ChangeCounter, self.path)
        except BaseException:
            await self.close()
            raise

    async def _opened(self, begin: str) -> _ConnectionThread:
        thread = _ConnectionThread(self.path, begin)
        try:
            await thread.open()
        except sqlite3.Error as error:
            raise StartupError(f"the database {self.path} cannot be used: {error}") from error
        self._threads.append(thread)
        return thread

    async def close(self) -> None:
        """Close every connection, after the work that was handed in. A thread that stayed would keep the process alive:
        none does, whatever goes wrong with another and even when this is cancelled."""
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
                await commits.idle()

    def change_number(self) -> int | None:
        """Another number after each commit, also of other processes; None when that cannot be told. Returns at once."""
        return None if self._changes is None else self._changes.number()

    async def read(self, work: Callable[[sa.Connection], T], *, owner: str | None = None, lane: Lane = "shared") -> T:
        """What `work` gives, run on a thread in a transaction that only reads and sees one moment. `owner` is the
        organization that asks, None the server itself: owners take turns. What a caller waits for is in the lane
        `calls`, where nothing else keeps it waiting. Raises `StorageUnavailable`, and what `work` raises."""
        if self._readers is None:
            raise _not_open()
        return await self._readers.read(work, owner, lane)

    async def write(
        self, work: Callable[[sa.Connection], T], *, owner: str | None = None, deferrable: bool = False
    ) -> T:
        """What `work` gives, run on a thread in a transaction that writes: committed and on the disk when this returns,
        gone when `work` raises. One at a time, also among processes; owners (as in `read`) take turns, each in the
        order of its calls, and those that wait share a commit. `deferrable`: other writes go first. Once
        handed in it runs to its end, whether or not its caller still waits. Raises `StorageUnavailable`, and what
        `work` raises."""
        if self._commits is None:
            raise _not_open()
        try:
            return await self._commits.write(work, owner=owner, deferrable=deferrable)
        except StorageUnavailable as trouble:
            if trouble.disk_full:
                self.on_full()
            raise


def _not_open() -> StorageUnavailable:
    return StorageUnavailable("the database is not open")


class _ConnectionThread:
    """A connection with its thread (aiosqlite's), and SQLAlchemy's connection on top of it, which only that thread
    uses. `begin` is the statement that begins its transactions."""

    def __init__(self, path: Path, begin: str) -> None:
        self._begin: Final = begin
        self._connection = aiosqlite.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        # The library has no public way to run a function on a connection's thread, only single statements.
        self._on_thread: Callable[..., Awaitable[Any]] = self._connection._execute
        self._core: sa.Connection

    async def open(self) -> None:
        """Connect."""
        try:
            await self._connection
            self._core = await self._on_thread(self._prepare)
        except BaseException:
            await self._connection.close()
            await asyncio.to_thread(self._connection._thread.join)  # it tells the event loop when it ends
            raise

    async def close(self) -> None:
        """After everything that was handed in."""
        try:
            await self._on_thread(self._core.close)
        finally:
            await self._connection.close()

    def begin(self, work: Callable[[sa.Connection], Any], context: Context) -> asyncio.Future[Any]:
        """Hand in a transaction, to run in a context; see `Reader`."""
        done = asyncio.get_running_loop().create_future()
        # As the library's `_execute` does, without a task of its own for every transaction.
        self._connection._tx.put_nowait((done, partial(context.run, self._transaction, work)))
        return done

    async def run_group(self, writes: Sequence[PendingWrite]) -> Sequence[Any]:
        """Hand in several pieces of work as one transaction; see `GroupCommit`."""
        result: Sequence[Any] = await self._on_thread(self._transaction, partial(self._one_by_one, writes))
        return result

    def _one_by_one(self, writes: Sequence[PendingWrite], core: sa.Connection) -> list[Any]:
        """The outcomes, of the first writes only when they take too long."""
        if len(writes) == 1:
            return [writes[0].run(core)]
        until_s = time.monotonic() + MAX_GROUP_S
        outcomes: list[Any] = []
        for write in writes:
            if outcomes and time.monotonic() >= until_s:
                break
            outcomes.append(self._in_savepoint(write, core))
        return outcomes

    def _in_savepoint(self, write: PendingWrite, core: sa.Connection) -> Any:
        """The result, or `Failed` with nothing of it left. Raises when SQLite has given up the whole transaction."""
        raw = self._connection._conn
        raw.execute("SAVEPOINT piece")
        try:
            with _TranslatedErrors():
                result = write.run(core)
        except Exception as error:
            if not raw.in_transaction:
                raise
            raw.execute("ROLLBACK TO piece")
            result = WriteFailed(error)
        raw.execute("RELEASE piece")
        return result

    def _prepare(self) -> sa.Connection:
        """Every commit is on the disk before it returns; foreign keys hold; what is deleted is overwritten."""
        raw = self._connection._conn
        busy = f"busy_timeout={int(BUSY_TIMEOUT_S * 1000)}"
        for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON", busy):
            raw.execute(f"PRAGMA {pragma}").fetchall()
        if self._begin == READ:
            raw.execute("PRAGMA query_only=ON")
        return connect(raw, self._begin)

    def _transaction(self, work: Callable[[sa.Connection], T]) -> T:
        raw = self._connection._conn
        try:
            with _TranslatedErrors(), self._core.begin():
                return work(self._core)
        except StopIteration as error:  # no future takes it: the caller would wait forever
            raise RuntimeError("a transaction raised StopIteration") from error
        finally:
            if raw.in_transaction:  # a commit that failed, because the disk is full
                raw.rollback()


def _parse_url(url: str) -> tuple[sa.URL, Path]:
    try:
        parsed = make_url(url)
    except sa.exc.ArgumentError:
        parsed = None
    database = None if parsed is None or parsed.drivername != "sqlite+aiosqlite" else parsed.database
    if parsed is None or not database or database == ":memory:":
        raise StartupError("bad setting database.url: it takes sqlite+aiosqlite:///path/to/file")
    return parsed, Path(database)


class _TranslatedErrors:
    """Turns the driver's errors about disk and locks into `StorageUnavailable`; others pass."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        reported = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(reported, sqlite3.Error):
            cause = _UNAVAILABLE.get(getattr(reported, "sqlite_errorcode", 0) & 0xFF)
            if cause is not None:
                raise StorageUnavailable(cause) from error
