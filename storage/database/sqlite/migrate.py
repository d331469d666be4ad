"""Migrates a database file to the newest revision of `storage/migrations`."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
import structlog

from config.errors import StartupError
from storage.database import file_permissions, migrations, server_lock
from storage.database.sqlite import upgrade_backup

LOCK_TIMEOUT_S: Final = 60.0
"""How long a start waits for the migrations of another process."""

log = structlog.get_logger()


def migrate(path: Path) -> None:
    """Create the database file when it is absent, enable WAL, run the missing migrations, after a copy of existing data
    (`upgrade_backup`). All or none of them take effect. Processes that do so at once take turns. Blocks: run it on a
    thread. Raises `StartupError`."""
    try:
        file_permissions.make_folder(path.parent)
        with _migration_lock(path):
            _migrate_from(_prepared_revision(path), path)
    except OSError as error:
        raise StartupError(f"the database {path} cannot be used: {error.strerror}") from error
    except (sqlite3.Error, sa.exc.DBAPIError) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise StartupError(f"the database {path} cannot be used: {cause}") from error


@contextmanager
def _migration_lock(path: Path) -> Iterator[None]:
    """One process at a time. SQLite's own lock is not enough: while another connection is active, enabling WAL fails at
    once, whatever the timeout."""
    turns = Path(f"{path}-start")
    file_permissions.make_file(turns)
    handle = os.open(turns, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _prepared_revision(path: Path) -> str | None:
    """Enables WAL; returns the file's revision, None when it is new. SQLite's files beside the database get its
    permissions."""
    file_permissions.make_file(path)
    with closing(sqlite3.connect(path, timeout=LOCK_TIMEOUT_S)) as conn:
        os.chmod(path, 0o600)
        conn.execute("PRAGMA journal_mode=WAL")
        if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone() is None:
            return None
        row = conn.execute("SELECT version_num FROM alembic_version").fetchone()
        return None if row is None else str(row[0])


def _migrate_from(revision: str | None, path: Path) -> None:
    if revision == migrations.HEAD:
        return
    if revision is None:
        _run_migrations(path)
        return
    migrations.check_complete(revision, str(path))
    if not migrations.is_known_revision(revision):
        raise StartupError(_newer_version_error(path, revision))
    _check_no_older_server(path)
    backup = upgrade_backup.create(path, revision)
    try:
        _run_migrations(path)
    except Exception as error:  # whatever a migration raises, its transaction was rolled back
        backup.unlink(missing_ok=True)
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise StartupError(
            f"the upgrade of the database {path} from revision {revision} to {migrations.HEAD} failed and was rolled "
            f"back, the data is as before; the previous version of Trunkline can use it: {cause!r}"
        ) from error
    log.info("upgrade.migrated", revision=revision, to=migrations.HEAD, backup=str(backup))


def _run_migrations(path: Path) -> None:
    """Run the missing migrations in one transaction."""
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool, connect_args={"timeout": LOCK_TIMEOUT_S})
    sa.event.listen(engine, "connect", _disable_driver_transactions)
    sa.event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as conn:
        migrations.upgrade(conn, "sqlite")


def _newer_version_error(path: Path, revision: str) -> str:
    """One line that says how to go on."""
    copy = upgrade_backup.newest(path)
    way_back = "" if copy is None else f", or go back to the copy from before its upgrade: {copy}"
    return (
        f"the database {path} was written by a newer version of Trunkline (revision {revision}, this version has "
        f"{migrations.HEAD}): install that version again{way_back}"
    )


def _check_no_older_server(path: Path) -> None:
    """Raises `StartupError` if another process serves from the database: it is of the version before, and would go on
    with tables that it does not know."""
    server = server_lock.other_server_on(path)
    if server is not None:
        raise StartupError(
            f"the database {path} is in use by a server of an older version (process {server}): restart it with this "
            "version first, which migrates the database"
        )


def _disable_driver_transactions(dbapi_connection: sqlite3.Connection, _record: object) -> None:
    """Disable the driver's own transactions, so that all migrations, table changes included, are one transaction, in
    which Alembic also reads the revision: a process that waited for its turn finds the file migrated."""
    dbapi_connection.isolation_level = None
