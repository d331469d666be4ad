"""Creates the tables of a PostgreSQL database, or migrates it to the newest revision."""

from __future__ import annotations

from contextlib import closing
from typing import Final

import psycopg
import sqlalchemy as sa
import structlog
from sqlalchemy.exc import DBAPIError

from config.errors import StartupError
from storage.database import database_url, migrations
from storage.database.postgresql.connection import connect, execute, raw_connection
from storage.database.postgresql.locks import MIGRATION

MIN_SERVER_VERSION: Final = 14_00_00
_ENCODING: Final = "UTF8"

log = structlog.get_logger()


def migrate(url: sa.URL) -> None:
    """Run the missing migrations, all or none of them; nodes that do so at once take turns. Blocks: run it on a thread.
    Raises `StartupError`."""
    try:
        with closing(connect(url)) as conn:
            _check_server(conn)
            _migrate_locked(conn, database_url.shown(url))
    except (psycopg.Error, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise StartupError(f"the database {database_url.shown(url)} cannot be used: {str(cause).strip()}") from error


def revision_of(conn: sa.Connection) -> str | None:
    """Returns the revision of the tables; None when there are none."""
    if conn.exec_driver_sql("SELECT to_regclass('alembic_version')").scalar_one() is None:
        return None
    row = conn.exec_driver_sql("SELECT version_num FROM alembic_version").one_or_none()
    return None if row is None else str(row[0])


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


def _migrate_locked(conn: sa.Connection, name: str) -> None:
    """The lock ends with the transaction."""
    with conn.begin():
        execute(raw_connection(conn), f"SET LOCAL lock_timeout = '60s'; SELECT pg_advisory_xact_lock({MIGRATION})")
        revision = revision_of(conn)
        if revision == migrations.HEAD:
            return
        migrations.check_complete(revision, name)
        if revision is not None and not migrations.is_known_revision(revision, "postgresql"):
            raise StartupError(
                f"the database was written by a newer version of Trunkline (revision {revision}, this version has "
                f"{migrations.HEAD}): install that version again"
            )
        migrations.upgrade(conn, "postgresql")
    if revision is not None:
        log.info("upgrade.migrated", revision=revision, to=migrations.HEAD)
