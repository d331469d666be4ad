"""A PostgreSQL connection with its thread, which connects again after the connection was lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg import errors
from psycopg.pq import TransactionStatus
from sqlalchemy.exc import DBAPIError

from storage.database.errors import DISK_FULL, StorageUnavailable
from storage.database.group_commit import PendingWrite, WriteFailed, run_each
from storage.database.postgresql.connection import connect, execute, raw_connection
from storage.database.postgresql.locks import statement_of

MAX_GROUP_S: Final = 0.1
"""A commit takes no further writes after this time, seconds, so that a ringing call does not wait longer."""
MAX_ATTEMPTS: Final = 5
"""How often a transaction runs that PostgreSQL ends because of another one (deadlock, serialization failure)."""
RECONNECT_S: Final = (0.5, 1.0)
"""Range of the time between two attempts to connect, seconds: a server that comes back is not met by all connections of
all nodes at once."""
READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"

T = TypeVar("T")


class ConnectionThread:
    """A thread with SQLAlchemy's connection, which only that thread uses. A read transaction sees one snapshot; each
    statement of a write transaction sees what was committed before it, and its locks exclude writes that could change
    the rows in between."""

    def __init__(self, url: sa.URL, name: str, node: str | None) -> None:
        self._url: Final = url
        self._node: Final = node
        self._executor = ThreadPoolExecutor(1, f"postgresql {name}")
        self._core: sa.Connection | None = None
        self._next_attempt_s = 0.0
        self._failure = ""
        """Why the last attempt to connect failed."""

    async def open(self) -> None:
        """Connect. Raises `StorageUnavailable`."""
        await self._on_thread(self._connected)

    async def close(self) -> None:
        """Close after all pending work, and end the thread."""
        try:
            await self._on_thread(self._disconnect)
        finally:
            self._executor.shutdown(wait=False)

    def connect_soon(self) -> None:
        """Connect at the next transaction, also within the pause after a failure. Any thread."""
        self._next_attempt_s = 0.0

    def begin(self, work: Callable[[sa.Connection], Any], context: Context) -> asyncio.Future[Any]:
        """Queue a read transaction, to run in a context; see `ReadConnection`."""
        return self._on_thread(partial(context.run, self._read, work))

    async def run_group(self, lock: str | None, writes: Sequence[PendingWrite]) -> Sequence[Any]:
        """Run several writes in one transaction that holds a lock. Returns the result or `WriteFailed` of each; only
        of the first ones when they take long. Raises `StorageUnavailable` when none of them is committed."""
        result: Sequence[Any] = await self._on_thread(partial(self._write, lock, writes))
        return result

    def _on_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    # ---- the connection's thread ----

    def _connected(self) -> sa.Connection:
        if self._core is not None and not self._core.invalidated and not raw_connection(self._core).closed:
            return self._core
        self._disconnect()
        if time.monotonic() < self._next_attempt_s:
            raise StorageUnavailable(self._failure or "the database cannot be reached", unreachable=True)
        try:
            self._core = connect(self._url)
        except (psycopg.Error, DBAPIError) as error:
            # after the attempt, which may take seconds: else each waiting transaction would take as long
            self._next_attempt_s = time.monotonic() + random.uniform(*RECONNECT_S)
            self._failure = f"the database cannot be reached: {_first_line(error)}"
            raise StorageUnavailable(self._failure, unreachable=True) from error
        self._failure = ""
        self._core.info["node"] = self._node
        return self._core

    def _disconnect(self) -> None:
        core, self._core = self._core, None
        if core is not None:
            core.invalidate()
            core.close()

    def _read(self, work: Callable[[sa.Connection], T]) -> T:
        return self._transaction(READ, work)

    def _write(self, lock: str | None, writes: Sequence[PendingWrite]) -> Sequence[Any]:
        # One round trip: each statement of READ COMMITTED sees what was committed before it, so after the lock.
        return self._transaction(f"{WRITE}; {statement_of(lock)}", partial(self._one_by_one, writes))

    def _transaction(self, begin: str, work: Callable[[sa.Connection], T]) -> T:
        attempt = 1
        while True:
            try:
                core, transaction = self._begun(begin)
                with _TranslatedErrors(), transaction:
                    result = work(core)
                    self._commit(transaction)
                    return result
            except StopIteration as error:  # no future takes it: the caller would wait forever
                raise RuntimeError("a transaction raised StopIteration") from error
            except _Retry as retry:
                if attempt == MAX_ATTEMPTS:
                    raise StorageUnavailable("other transactions prevent this one") from retry
                time.sleep(random.uniform(0, 0.005 * 2**attempt))
                attempt += 1
            finally:
                self._end_transaction()

    def _begun(self, begin: str) -> tuple[sa.Connection, sa.RootTransaction]:
        """Begin a transaction; on a new connection if the present one was lost."""
        core = self._connected()
        core.info["begin"] = begin
        try:
            with _TranslatedErrors():
                return core, core.begin()
        except StorageUnavailable as error:
            if not error.is_outage:
                raise
        self._disconnect()
        core = self._connected()
        core.info["begin"] = begin
        with _TranslatedErrors():
            return core, core.begin()

    def _commit(self, transaction: sa.RootTransaction) -> None:
        try:
            with _TranslatedErrors():
                transaction.commit()
        except StorageUnavailable as error:
            error.outcome_unknown = error.is_outage and not error.disk_full
            raise

    def _end_transaction(self) -> None:
        """A connection whose state is unknown is closed."""
        if self._core is None or self._core.invalidated:  # then SQLAlchemy has found that it is lost
            return
        raw = raw_connection(self._core)
        if raw.closed or raw.pgconn.transaction_status != TransactionStatus.IDLE:
            self._disconnect()

    def _one_by_one(self, writes: Sequence[PendingWrite], core: sa.Connection) -> list[Any]:
        """The outcomes; only those of the first writes when they take too long."""
        return run_each(writes, core, partial(_in_savepoint, core=core), MAX_GROUP_S)


def _in_savepoint(write: PendingWrite, core: sa.Connection) -> Any:
    """The result, or `WriteFailed` after a rollback to the savepoint. Raises when PostgreSQL has ended the whole
    transaction."""
    raw = raw_connection(core)
    execute(raw, "SAVEPOINT piece")
    try:
        with _TranslatedErrors():
            result = write.run(core)
    except (_Retry, StorageUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - its caller gets it
        execute(raw, "ROLLBACK TO piece")
        result = WriteFailed(error)
    execute(raw, "RELEASE piece")
    return result


_RETRIED: Final = (errors.SerializationFailure, errors.DeadlockDetected, errors.IdleInTransactionSessionTimeout)


class _Retry(Exception):
    """The transaction was rolled back because of another one, and succeeds when it runs again."""


class _TranslatedErrors:
    """Turns the driver's errors about the server into `StorageUnavailable`, and those that ask for another attempt
    into `_Retry`; other errors pass."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        reported = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(reported, _RETRIED):
            raise _Retry from error
        if isinstance(reported, errors.DiskFull):
            raise StorageUnavailable(DISK_FULL) from error
        if isinstance(reported, errors.LockNotAvailable):
            raise StorageUnavailable("another transaction holds a lock of the database") from error
        if isinstance(reported, errors.ReadOnlySqlTransaction):
            raise StorageUnavailable("the database is read-only", read_only=True) from error
        if isinstance(reported, (psycopg.OperationalError, psycopg.InterfaceError)):
            cause = f"the database cannot be reached: {_first_line(reported)}"
            raise StorageUnavailable(cause, unreachable=True) from error


def _first_line(error: BaseException) -> str:
    reported = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(reported).strip().partition("\n")[0] or type(reported).__name__
