"""A migrated, empty database that tests copy, because that takes a tenth of the time of the migrations."""

from __future__ import annotations

import asyncio
import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sqlalchemy as sa

from storage.database.database import Database
from storage.database.sqlite.migrate import migrate
from tests.peers import postgresql


def is_postgresql() -> bool:
    """True if the databases of tests are PostgreSQL's."""
    return os.environ.get("TEST_DATABASE") == "postgresql"


def sqlite_only(why: str) -> pytest.MarkDecorator:
    """Skips a test on PostgreSQL; `why` says what it needs of SQLite."""
    return pytest.mark.skipif(is_postgresql(), reason=f"with PostgreSQL {why}")


def refuse_rows(conn: sa.Connection, table: str) -> None:
    """Let every insert into the table fail, in both engines."""
    if conn.dialect.name == "sqlite":
        conn.execute(sa.text(f"CREATE TRIGGER refused BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END"))
        return
    body = "BEGIN RAISE check_violation; END"
    conn.execute(sa.text(f"CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS '{body}'"))
    conn.execute(sa.text(f"CREATE TRIGGER refused BEFORE INSERT ON {table} EXECUTE FUNCTION refused()"))


def take_rows(conn: sa.Connection, table: str) -> None:
    """End `refuse_rows`."""
    of_table = "" if conn.dialect.name == "sqlite" else f" ON {table}"
    conn.execute(sa.text(f"DROP TRIGGER refused{of_table}"))


async def copy_to(folder: Path) -> str:
    """Copies the template to `trunkline.db` in a folder, unless that exists; or to a database of PostgreSQL, when the
    environment variable `TEST_DATABASE` is `postgresql`. Returns its URL."""
    if is_postgresql():
        return await asyncio.to_thread(lambda: postgresql.server().take_database())
    path = folder / "trunkline.db"
    await asyncio.to_thread(_copy, path)
    return f"sqlite+aiosqlite:///{path}"


def url_of_copy(folder: Path) -> str | None:
    """As `copy_to`, on the calling thread, which may block; an existing file is replaced. Returns None for the file,
    which settings name by default."""
    if is_postgresql():
        return postgresql.server().take_database()
    (folder / "trunkline.db").write_bytes(image())
    return None


async def open_copy(folder: Path) -> Database:
    """Copies the template to a folder and opens it. The caller closes it."""
    database = Database(await copy_to(folder))
    await database.open()
    return database


def _copy(path: Path) -> None:
    if not path.exists():
        path.write_bytes(image())


@cache
def image() -> bytes:
    """The bytes of the template."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trunkline.db"
        migrate(path)
        return path.read_bytes()
