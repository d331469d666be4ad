"""Creates the tables of a PostgreSQL database, or migrates it to the newest revision, beside nodes that use it."""

from __future__ import annotations

import random
import time
from contextlib import closing
from typing import Final

import psycopg
import sqlalchemy as sa
import structlog
from psycopg import errors
from sqlalchemy.exc import DBAPIError

from config.errors import StartupError
from storage.database import database_url, migrations
from storage.database.errors import DatabaseAway
from storage.database.postgresql.connection import connect, execute, raw_connection
from storage.database.postgresql.locks import MIGRATION, hold_writes
from storage.database.postgresql.outage import is_outage

MIN_SERVER_VERSION: Final = 14_00_00
_ENCODING: Final = "UTF8"
TURN_TIMEOUT_S: Final = 60
"""How long a start waits for the migrations of another node, and tries to get the locks of its own."""
LOCK_TIMEOUT_S: Final = 2
"""How long a migration waits for a lock, while all later transactions wait behind it; then it lets them run."""
RETRY_S: Final = (0.5, 1.0)
"""Range of the time between two attempts, seconds."""
NODE_IS_DOWN_MS: Final = 6000
"""As `storage.nodes.nodes.DOWN_AFTER`."""

log = structlog.get_logger()


def migrate(url: sa.URL) -> None:
    """Run the missing migrations, all or none of them; nodes that do so at once take turns. A database of a newer
    version that is compatible stays as it is. Blocks: run it on a thread. Raises `StartupError`."""
    name = database_url.shown(url)
    try:
        with closing(connect(url)) as conn:
            _check_server(conn)
            _migrate_when_unlocked(conn, name)
    except (psycopg.Error, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        kind = DatabaseAway if is_outage(cause) else StartupError
        raise kind(f"the database {name} cannot be used: {str(cause).strip()}") from error


def revision_of(conn: sa.Connection) -> str | None:
    """Returns the revision of the tables; None when there are none."""
    if conn.exec_driver_sql("SELECT to_regclass('alembic_version')").scalar_one() is None:
        return None
    row = conn.exec_driver_sql("SELECT version_num FROM alembic_version").one_or_none()
    return None if row is None else str(row[0])


def compatible_from(conn: sa.Connection) -> str | None:
    """Returns `migrations.COMPATIBLE_FROM` of the version that has migrated the tables; None when it is not stored."""
    stored = conn.exec_driver_sql(
        "SELECT to_jsonb(alembic_version) ->> 'compatible_from' FROM alembic_version"
    ).one_or_none()
    return None if stored is None or stored[0] is None else str(stored[0])


def _check_server(conn: sa.Connection) -> None:
    raw = raw_connection(conn)
    version = raw.info.server_version
    if version < MIN_SERVER_VERSION:
        raise StartupError(f"the PostgreSQL server has version {version // 10_000}: it must be 14 or newer")
    encoding = raw.info.parameter_status("server_encoding")
    if encoding != _ENCODING:
        raise StartupError(
            f"the database has the encoding {encoding}: create it with ENCODING 'UTF8' (createdb -E UTF8 -T template0)"
        )


def _migrate_when_unlocked(conn: sa.Connection, name: str) -> None:
    """Other transactions may hold locks: the migration is rolled back, and tried again."""
    deadline_s = time.monotonic() + TURN_TIMEOUT_S
    while True:
        try:
            _migrate(conn, name)
            return
        except (psycopg.Error, DBAPIError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if not isinstance(cause, (errors.LockNotAvailable, errors.DeadlockDetected)):
                raise
            if time.monotonic() > deadline_s:
                raise StartupError(
                    f"the database {name} cannot be migrated: for {TURN_TIMEOUT_S} s other sessions have held locks of "
                    "its tables (a migration, a copy, pg_dump); start again when they have ended"
                ) from error
        time.sleep(random.uniform(*RETRY_S))


def _migrate(conn: sa.Connection, name: str) -> None:
    """The locks end with the transaction. Writes of all nodes wait meanwhile, so that no write holds a lock of a
    table; heartbeats do not wait."""
    with conn.begin():
        raw = raw_connection(conn)
        execute(
            raw,
            f"SET LOCAL idle_in_transaction_session_timeout = '{TURN_TIMEOUT_S}s'; "
            f"SET LOCAL lock_timeout = '{TURN_TIMEOUT_S}s'; SELECT pg_advisory_xact_lock({MIGRATION})",
        )
        revision = revision_of(conn)
        if not _is_due(conn, revision, name):
            return
        execute(raw, f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'; {hold_writes(in_transaction=True)}")
        _check_no_incompatible_node(conn, revision, name)
        migrations.upgrade(conn, "postgresql")
        execute(
            raw,
            "ALTER TABLE alembic_version ADD COLUMN IF NOT EXISTS compatible_from VARCHAR; "
            f"UPDATE alembic_version SET compatible_from = '{migrations.COMPATIBLE_FROM}'",
        )
    if revision is not None:
        log.info("upgrade.migrated", revision=revision, to=migrations.HEAD)


def _is_due(conn: sa.Connection, revision: str | None, name: str) -> bool:
    """False if the tables can be used as they are. Raises `StartupError` if they cannot be migrated, either."""
    if revision == migrations.HEAD:
        return False
    migrations.check_complete(revision, name)
    if revision is None or migrations.is_known_revision(revision, "postgresql"):
        return True
    if migrations.is_compatible(compatible_from(conn)):
        log.info("upgrade.newer_database", revision=revision, own=migrations.HEAD)
        return False
    raise StartupError(
        f"the database was written by a newer version of Trunkline (revision {revision}, this version has "
        f"{migrations.HEAD}): install that version again"
    )


def _check_no_incompatible_node(conn: sa.Connection, revision: str | None, name: str) -> None:
    """Raises `StartupError` while nodes run that cannot go on with the tables of this version."""
    if revision is None or revision >= migrations.COMPATIBLE_FROM:
        return
    if conn.exec_driver_sql("SELECT to_regclass('nodes')").scalar_one() is None:
        return
    running = conn.exec_driver_sql(
        "SELECT name FROM nodes WHERE state != 'down' AND last_seen_at >= "
        f"extract(epoch FROM clock_timestamp()) * 1000 - {NODE_IS_DOWN_MS} ORDER BY name"
    ).scalars()
    if names := ", ".join(running):
        raise StartupError(
            f"the database {name} is in use by {names}, of a version that cannot go on after the migration from "
            f"revision {revision} to {migrations.HEAD}: stop these servers first, or upgrade to the versions between "
            "one after the other"
        )
