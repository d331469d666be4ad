"""SQLAlchemy on SQLite connections that are there already. All share one engine: to compile a statement takes twenty
times as long as to run it, and what one connection has compiled serves the others, whatever their threads and files."""

from __future__ import annotations

import sqlite3
from contextvars import ContextVar
from typing import Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

_raw_connection: ContextVar[sqlite3.Connection] = ContextVar("given")
_ENGINE: Final = sa.create_engine("sqlite://", creator=_raw_connection.get, poolclass=NullPool)


def connect(raw: sqlite3.Connection, begin: str) -> sa.Connection:
    """SQLAlchemy's connection on top of `raw`, which it closes with itself; `begin` is the statement that begins its
    transactions. Both belong to the thread that calls this."""
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
