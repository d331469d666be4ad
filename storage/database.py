"""The database: connections, transactions, errors that say what is wrong. SQLite now, elsewhere with the same calls."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from config.errors import StartupError, Unavailable
from storage.schema import bring_up_to_date

BUSY_TIMEOUT_S: Final = 10.0
"""How long a statement waits for another process that writes."""
READERS: Final = 4
"""Connections for reading; each is a thread."""

_TROUBLE: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_BUSY: "the database is locked by another process",
    sqlite3.SQLITE_LOCKED: "the database is locked by another process",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_READONLY: "the database is read-only",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database",
}


class StorageTrouble(Unavailable):
    """The database cannot do its work now (disk full, locked, ...); the transaction left nothing behind.
    `cause` says why, for the log; the message is for clients."""

    def __init__(self, cause: str) -> None:
        super().__init__("Service temporarily unavailable", retry_after_s=5)
        self.cause = cause

    def __str__(self) -> str:
        return f"storage: {self.cause}"


class Database:
    """The installation's database. Reads see one moment; a write is one transaction that runs alone."""

    def __init__(self, url: str) -> None:
        """`url` as SQLAlchemy takes it, `sqlite+aiosqlite:///path/to/file`. `StartupError` when it is none."""
        self.url, self.path = _parsed(url)
        self._reads = self._engine(READERS, "BEGIN")
        self._writes = self._engine(1, "BEGIN IMMEDIATE")
        self._turn = asyncio.Lock()

    def _engine(self, connections: int, begin: str) -> AsyncEngine:
        engine = create_async_engine(
            self.url,
            poolclass=AsyncAdaptedQueuePool,
            pool_size=connections,
            max_overflow=0,
            connect_args={"timeout": BUSY_TIMEOUT_S},
        )
        sa.event.listen(engine.sync_engine, "connect", _prepare)
        sa.event.listen(engine.sync_engine, "begin", lambda conn: _begin(conn, begin))
        return engine

    async def open(self) -> None:
        """Make the file when there is none and bring its tables up to date, also beside other processes that do the
        same. `StartupError` when that cannot be."""
        await asyncio.to_thread(bring_up_to_date, self.path)

    async def close(self) -> None:
        """Close every connection, after the write that is running."""
        async with self._turn:
            await self._writes.dispose()
        await self._reads.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads, and sees one moment. Raises `StorageTrouble`."""
        with _NamedTrouble():
            async with self._reads.connect() as conn:
                yield conn

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes: committed and on the disk when the block ends, gone when it raises. One at a
        time, also among processes. Raises `StorageTrouble`."""
        async with self._turn:
            with _NamedTrouble():
                async with self._writes.connect() as conn, conn.begin():
                    yield conn


def _parsed(url: str) -> tuple[sa.URL, Path]:
    try:
        parsed = make_url(url)
    except sa.exc.ArgumentError:
        parsed = None
    database = None if parsed is None or parsed.drivername != "sqlite+aiosqlite" else parsed.database
    if parsed is None or not database or database == ":memory:":
        raise StartupError("bad setting database.url: it takes sqlite+aiosqlite:///path/to/file")
    return parsed, Path(database)


class _NamedTrouble:
    """Turns the driver's errors about disk and locks into `StorageTrouble`; others pass."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        reported = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(reported, sqlite3.Error):
            cause = _TROUBLE.get(getattr(reported, "sqlite_errorcode", 0) & 0xFF)
            if cause is not None:
                raise StorageTrouble(cause) from error


def _begin(conn: sa.Connection, statement: str) -> None:
    """Begin a transaction in one trip to the connection's thread; through a cursor of SQLAlchemy it takes three."""
    adapted: Any = conn.connection.dbapi_connection
    adapted.run_async(lambda raw: raw.execute(statement))


def _prepare(dbapi_connection: Any, _record: Any) -> None:
    """Transactions are begun by us; every commit is on the disk before it returns; foreign keys hold."""
    dbapi_connection.isolation_level = None
    cursor = dbapi_connection.cursor()
    for pragma in ("synchronous=FULL", "foreign_keys=ON", f"busy_timeout={int(BUSY_TIMEOUT_S * 1000)}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
