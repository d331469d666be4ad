"""Opens the two databases of a copy, each for this process alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from config.errors import StartupError
from storage.database import database_url, migrations, server_lock
from storage.database.database_url import POSTGRESQL
from storage.database.postgresql import require_driver
from storage.nodes import nodes
from storage.row_copy.side import Side
from storage.row_copy.sqlite_side import SqliteSide


@contextmanager
def open_source(url: sa.URL, *, hold: bool = True) -> Iterator[Side]:
    """The source in one snapshot, at this version's revision. `hold`: no server runs on it, and none writes until the
    end of the block. Raises `StartupError`."""
    opened = _open_postgresql(url, hold) if url.drivername == POSTGRESQL else _open_file(url, hold)
    with opened as side, side.snapshot():
        migrations.require_head(side.revision(), side.name)
        yield side


@contextmanager
def open_target(url: sa.URL) -> Iterator[Side]:
    """The target, with its tables; created if it is a file. No other copy into it runs. Raises `StartupError`."""
    if url.drivername == POSTGRESQL:
        require_driver()
        from storage.database.postgresql import migrate
        from storage.database.postgresql.locks import COPY

        with _open_postgresql(url, hold=False, lock=f"SELECT pg_advisory_lock({COPY})") as side:
            _prepare(side, lambda: migrate.migrate(url))
            yield side
        return
    from storage.database.sqlite import migrate as sqlite_migrate

    path = Path(str(url.database))
    with server_lock.lock_database(path):
        if not path.exists() or path.stat().st_size == 0:
            sqlite_migrate.migrate(path)
        with _open_file(url, hold=False) as side:
            _prepare(side, lambda: sqlite_migrate.migrate(path))
            yield side


def _prepare(side: Side, migrate: Callable[[], None]) -> None:
    revision = side.revision()
    if revision == migrations.COPYING:
        return
    if revision is None and side.has_tables():
        raise StartupError(f"the database {side.name} holds tables that are not Trunkline's: take an empty one")
    migrate()


@contextmanager
def _open_file(url: sa.URL, hold: bool) -> Iterator[Side]:
    path = Path(str(url.database))
    if not path.exists():
        raise StartupError(f"there is no database {path}")
    try:
        if not hold:
            with closing(SqliteSide(path)) as side:
                yield side
            return
        with server_lock.lock_database(path), closing(SqliteSide(path)) as side:
            yield side
    except sqlite3.Error as error:
        raise StartupError(f"the database {path}: {error}{_notes(error)}") from error


@contextmanager
def _open_postgresql(url: sa.URL, hold: bool, lock: str | None = None) -> Iterator[Side]:
    require_driver()
    import psycopg

    from storage.database.postgresql.locks import hold_writes
    from storage.row_copy.postgresql_side import PostgresqlSide

    try:
        if hold:
            require_no_node(url)
        with closing(PostgresqlSide(url)) as side:
            if hold:
                side.run(hold_writes())
            if lock is not None:
                side.run(lock)
            yield side
    except psycopg.errors.LockNotAvailable as error:
        raise StartupError(f"the database {database_url.shown(url)} is in use, or another copy into it runs") from error
    except psycopg.Error as error:
        text = str(error).strip().partition("\n")[0]
        raise StartupError(f"the database {database_url.shown(url)}: {text}{_notes(error)}") from error


def _notes(error: BaseException) -> str:
    """What was done when the error occurred."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def require_no_node(url: sa.URL) -> None:
    """Raises `StartupError` while a server sends its heartbeats to a database of PostgreSQL."""
    from storage.database.postgresql.connection import connect

    try:
        with closing(connect(url)) as conn, conn.begin():
            if conn.exec_driver_sql("SELECT to_regclass('nodes')").scalar_one() is None:
                return
            running = [each.name for each in nodes.all_of(conn) if not each.is_down]
    except DBAPIError as error:
        text = str(error.orig).strip().partition("\n")[0]
        raise StartupError(f"the database {database_url.shown(url)}: {text}") from error
    if running:
        raise StartupError(
            f"the database {database_url.shown(url)} is in use by {', '.join(running)}: stop the servers first; one "
            f"that was killed counts for {nodes.DOWN_AFTER.seconds} s"
        )
