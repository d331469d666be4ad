"""SQLAlchemy connections to PostgreSQL. All share one engine and its cache of compiled statements, across threads,
because compiling a statement takes longer than running it."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg import errors, generators
from psycopg.adapt import Dumper
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from sqlalchemy.pool import NullPool

from storage.database.postgresql.session import Session

CONNECT_TIMEOUT_S: Final = 3
LOCK_TIMEOUT_S: Final = 10
"""How long a statement waits for a lock of another transaction, seconds."""
PREPARE_AFTER: Final = 1
"""A connection prepares a statement that it has run this often: parsing and planning take longer than running it."""
MAX_PREPARED: Final = 300
"""Prepared statements of a connection."""
_SESSION: Final = {
    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
    # A node that stops in the middle of a transaction releases its locks, and so does one that cannot be reached.
    "idle_in_transaction_session_timeout": "2s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "TimeZone": "UTC",
    "synchronous_commit": "on",
}
_KEEPALIVES: Final = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class _Text(Dumper):
    """A text as PostgreSQL can store it: U+FFFD instead of U+0000. It has no type of its own, as psycopg's."""

    def dump(self, obj: str) -> bytes:
        return obj.replace("\0", "\N{REPLACEMENT CHARACTER}").encode()


_SUCCEEDED: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
_url: ContextVar[sa.URL] = ContextVar("url")


def open_session(url: sa.URL) -> psycopg.Connection[Any]:
    """Returns a new connection, which begins no transactions of its own. Raises `psycopg.Error`."""
    options = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    _, arguments = _ENGINE.dialect.create_connect_args(url)
    given = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "trunkline", **_KEEPALIVES, **arguments}
    connection = Session.connect(autocommit=True, options=options, **given)
    connection.adapters.register_dumper(str, _Text)
    connection.prepare_threshold = PREPARE_AFTER
    connection.prepared_max = MAX_PREPARED
    return connection


def connect(url: sa.URL) -> sa.Connection:
    """Returns SQLAlchemy's connection on top of a new session. It begins its transactions with the statement in
    `info["begin"]`, and belongs to the calling thread. Raises `psycopg.Error` and SQLAlchemy's `DBAPIError`."""
    token = _url.set(url)
    try:
        core = _ENGINE.connect()
    finally:
        _url.reset(token)
    core.info["begin"] = "BEGIN"
    return core


def raw_connection(core: sa.Connection) -> psycopg.Connection[Any]:
    """Returns the driver's connection."""
    raw: Any = core.connection.dbapi_connection
    assert isinstance(raw, psycopg.Connection)
    return raw


def execute(raw: psycopg.Connection[Any], statements: str) -> None:
    """Run statements without parameters in one round trip. Raises `psycopg.Error`, of several errors the first one: the
    server says why it ends a connection before the end is noticed."""
    raw.pgconn.send_query(statements.encode())
    results = raw.wait(generators.execute(raw.pgconn))
    failed = next((each for each in results if each.status not in _SUCCEEDED), None)
    if failed is None:
        return
    error = errors.error_from_result(failed)
    if error.sqlstate is None and raw.pgconn.status != ConnStatus.OK:
        raise psycopg.OperationalError(str(error)) from error
    raise error


_ENGINE: Final = sa.create_engine(
    "postgresql+psycopg://", creator=lambda: open_session(_url.get()), poolclass=NullPool, use_native_hstore=False
)


def _end(statement: str, raw: psycopg.Connection[Any]) -> None:
    """End a transaction as the driver does, in half the time: that goes through its state machine."""
    if raw.pgconn.transaction_status != TransactionStatus.IDLE:
        execute(raw, statement)


def _roll_back(raw: Any) -> None:
    """Roll back; the end of the connection has done so, and its error is not to replace the one that is handled."""
    if not raw.closed:
        _end("ROLLBACK", raw)


_ENGINE.dialect.do_commit = partial(_end, "COMMIT")  # type: ignore[method-assign]
_ENGINE.dialect.do_rollback = _roll_back  # type: ignore[assignment, method-assign]


@sa.event.listens_for(_ENGINE, "begin")
def _begin(core: sa.Connection) -> None:
    execute(raw_connection(core), core.info["begin"])
