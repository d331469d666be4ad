"""A SQLite connection with its thread."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import aiosqlite
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from storage.database.errors import DISK_FULL, StorageUnavailable
from storage.database.group_commit import PendingWrite, WriteFailed, run_each
from storage.database.sqlite.connection import connect

BUSY_TIMEOUT_S: Final = 10.0
"""How long a statement waits for a write of another process, seconds."""
MAX_GROUP_S: Final = 0.1
"""A group commit takes no further writes after this time, seconds, so that a ringing call does not wait longer."""
READ: Final = "BEGIN"
WRITE: Final = "BEGIN IMMEDIATE"

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


class ConnectionThread:
    """An aiosqlite connection with its thread, and SQLAlchemy's connection on top of it, which only that thread uses.
    `begin` is the statement that begins its transactions."""

    def __init__(self, path: Path, begin: str, node: str | None) -> None:
        self._node: Final = node
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
        return run_each(writes, core, partial(self._in_savepoint, core=core), MAX_GROUP_S)

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
        core = connect(raw, self._begin)
        core.info["node"] = self._node
        return core

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
