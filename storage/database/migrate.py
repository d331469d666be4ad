"""Migrates a database file to the newest revision of `storage/migrations`."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from config.errors import StartupError
from storage.database import file_permissions

if TYPE_CHECKING:
    from alembic.config import Config as AlembicConfig

HEAD: Final = "0020"
"""The revision of the newest migration, as a test checks."""
LOCK_TIMEOUT_S: Final = 60.0
"""How long a start waits for the migrations of another process."""
MIGRATIONS: Final = Path(__file__).parents[1] / "migrations"


def migrate(path: Path) -> None:
    """Create the database file when it is absent, enable WAL, run the missing migrations. Processes that do so at once
    take turns. Blocks: run it on a thread. Raises `StartupError`."""
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
    if revision == HEAD:
        return
    from alembic import command  # imported late: most starts need no migration, and the import takes 0.3 s

    settings = alembic_settings()
    if revision is not None and not is_known_revision(revision):
        raise StartupError(f"the database {path} was written by a newer version of Trunkline (revision {revision})")
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool, connect_args={"timeout": LOCK_TIMEOUT_S})
    sa.event.listen(engine, "connect", _disable_driver_transactions)
    sa.event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as conn:
        settings.attributes["connection"] = conn
        command.upgrade(settings, "head")


def is_known_revision(revision: str) -> bool:
    """True if this version of Trunkline has the migration; False for a database of a newer version."""
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    try:
        return ScriptDirectory.from_config(alembic_settings()).get_revision(revision) is not None
    except CommandError:
        return False


def _disable_driver_transactions(dbapi_connection: sqlite3.Connection, _record: object) -> None:
    """Disable the driver's own transactions, so that all migrations, table changes included, are one transaction, in
    which Alembic also reads the revision: a process that waited for its turn finds the file migrated."""
    dbapi_connection.isolation_level = None


def alembic_settings() -> AlembicConfig:
    """Returns Alembic's configuration for the packaged migrations; set `attributes["connection"]` before a command."""
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return settings
