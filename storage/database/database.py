"""The database: connections, transactions, errors. A transaction is a plain function that runs as a whole on the thread
of a connection, so that it takes two thread switches, regardless of its statements."""

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
from storage.database.read_pool import ReadPool, ReadPriority

BUSY_TIMEOUT_S: Final = 10.0
"""How long a statement waits for a write of another process, seconds."""
READERS: Final = 3
"""Shared read connections, each with a thread. With more of them they would wait for the GIL. A further connection is
for reads of calls."""
MAX_GROUP_S: Final = 0.1
"""A group commit takes no further writes after this time, seconds, so that a ringing call does not wait longer."""

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
    """The database is unavailable (disk full, locked, ...); the transaction was rolled back. `cause` is for the log,
    the message for clients."""

    def __init__(self, cause: str) -> None:
        super().__init__("Service temporarily unavailable", retry_after_s=5)
        self.cause = cause

    @property
    def disk_full(self) -> bool:
        """True if the disk is full."""
        return self.cause == DISK_FULL

    def __str__(self) -> str:
        return f"storage: {self.cause}"


class Database:
    """The installation's database. A read sees a consistent snapshot; writes run one at a time."""

    def __init__(self, url: str) -> None:
        """`url` in SQLAlchemy's form, `sqlite+aiosqlite:///path/to/file`. Raises `StartupError` for any other."""
        self.url, self.path = _parse_url(url)
        self._commits: GroupCommit | None = None
        self._readers: ReadPool | None = None
        self._threads: list[_ConnectionThread] = []
        self._changes: ChangeCounter | None = None
        self.on_disk_full: Callable[[], None] = lambda: None
        """Called on the event loop when a write meets a full disk."""

    async def open(self) -> None:
        """Create the file when it is absent, and migrate it; safe for processes that do so at once. Raises
        `StartupError`."""
        await asyncio.to_thread(migrate, self.path)
        try:
            self._commits = GroupCommit((await self._open_thread(WRITE)).run_group)
            calls, *shared = [await self._open_thread(READ) for _ in range(1 + READERS)]
            self._readers = ReadPool(shared, calls, _not_open)
            self._changes = await asyncio.to_thread(ChangeCounter, self.path)
        except BaseException:
            await self.close()
            raise

    async def _open_thread(self, begin: str) -> _ConnectionThread:
        thread = _ConnectionThread(self.path, begin)
        try:
            await thread.open()
        except sqlite3.Error as error:
            raise StartupError(f"the database {self.path} cannot be used: {error}") from error
        self._threads.append(thread)
        return thread

    async def close(self) -> None:
        """Close every connection, after its pending work. Every thread ends, even when another one fails or this is
        cancelled, because a remaining thread would keep the process alive."""
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

    def change_number(self) -> int | None:
        """Returns another number after each commit, also of other processes; None when it cannot be read. Never
        blocks."""
        return None if self._changes is None else self._changes.number()

    async def read(
        self, work: Callable[[sa.Connection], T], *, owner: str | None = None, priority: ReadPriority = "shared"
    ) -> T:
        """Returns the result of `work`, run on a thread in a read transaction with a consistent snapshot. `owner` is
        the organization of the request, None the server itself; owners take turns. The priority `calls` is for reads
        that a caller waits for: no other read delays them. Raises `StorageUnavailable`, and what `work` raises."""
        if self._readers is None:
            raise _not_open()
        return await self._readers.read(work, owner, priority)

    async def write(
        self, work: Callable[[sa.Connection], T], *, owner: str | None = None, deferrable: bool = False
    ) -> T:
        """Returns the result of `work`, run on a thread in a write transaction: committed and synced to disk when this
        returns, rolled back when `work` raises. Writes run one at a time, also among processes; owners (as in `read`)
        take turns, each in the order of its calls, and waiting writes share a commit. `deferrable`: other writes go
        first. It runs to completion even when the caller is cancelled. Raises `StorageUnavailable`, and what `work`
        raises."""
        if self._commits is None:
            raise _not_open()
        try:
            return await self._commits.write(work, owner=owner, deferrable=deferrable)
        except StorageUnavailable as error:
            if error.disk_full:
                self.on_disk_full()
            raise


def _not_open() -> StorageUnavailable:
    return StorageUnavailable("the database is not open")


class _ConnectionThread:
    """An aiosqlite connection with its thread, and SQLAlchemy's connection on top of it, which only that thread uses.
    `begin` is the statement that begins its transactions."""

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
            await asyncio.to_thread(self._connection._thread.join)  # at its end it calls the event loop
            raise

    async def close(self) -> None:
        """Close after all pending work."""
        try:
            await self._on_thread(self._core.close)
        finally:
            await self._connection.close()

    def begin(self, work: Callable[[sa.Connection], Any], context: Context) -> asyncio.Future[Any]:
        """Queue a transaction, to run in a context; see `ReadConnection`."""
        done = asyncio.get_running_loop().create_future()
        # As the library's `_execute` does, without a task of its own for every transaction.
        self._connection._tx.put_nowait((done, partial(context.run, self._transaction, work)))
        return done

    async def run_group(self, writes: Sequence[PendingWrite]) -> Sequence[Any]:
        """Run several writes in one transaction; see `GroupCommit`."""
        result: Sequence[Any] = await self._on_thread(self._transaction, partial(self._one_by_one, writes))
        return result

    def _one_by_one(self, writes: Sequence[PendingWrite], core: sa.Connection) -> list[Any]:
        """The outcomes; only those of the first writes when they take too long."""
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
        """The result, or `WriteFailed` after a rollback to the savepoint. Raises when SQLite has rolled back the whole
        transaction."""
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
        """Set the pragmas: commits are synced to disk, foreign keys enforced, deleted content overwritten."""
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
    """Turns the driver's errors about disk and locks into `StorageUnavailable`; other errors pass."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        reported = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(reported, sqlite3.Error):
            cause = _UNAVAILABLE.get(getattr(reported, "sqlite_errorcode", 0) & 0xFF)
            if cause is not None:
                raise StorageUnavailable(cause) from error
