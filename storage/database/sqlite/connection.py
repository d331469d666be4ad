"""SQLAlchemy connections on top of existing SQLite connections. All share one engine and its cache of compiled
statements, across threads and files, because compiling a statement takes twenty times as long as running it."""

from __future__ import annotations

import sqlite3
from contextvars import ContextVar
from typing import Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

_raw_connection: ContextVar[sqlite3.Connection] = ContextVar("given")
_ENGINE: Final = sa.create_engine("sqlite://", creator=_raw_connection.get, poolclass=NullPool)


def connect(raw: sqlite3.Connection, begin: str) -> sa.Connection:
    """Returns SQLAlchemy's connection on top of `raw`, which it closes with itself; `begin` is the statement that
    begins its transactions. Both belong to the calling thread."""
    token = _raw_connection.set(raw)
    try:
        core = _ENGINE.connect()
    finally:
        _raw_connection.reset(token)
    core.info["begin"] = begin
    return core


@sa.event.listens_for(_ENGINE, "begin")
def _begin(core: sa.Connection) -> None:
    raw = core.connection.dbapi_connection
    assert raw is not None
    raw.execute(core.info["begin"])
