"""A migrated, empty database that tests copy, because that takes a tenth of the time of the migrations."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
import sqlalchemy as sa

from storage.database.database import Database
from storage.database.postgresql.notifications import CHANNEL
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


def contains(database: Database, text: str) -> bool:
    """True if the text is in a file of the database, the write-ahead log included, or in a row of PostgreSQL. Blocks;
    the database may be closed."""
    if database.is_sqlite:
        files = database.path.parent.glob(f"{database.path.name}*")
        return any(text.encode() in file.read_bytes() for file in files)
    return any(text in row or text.encode().hex() in row for row in postgresql.server().rows(database.url))


async def settled(database: Database) -> None:
    """Wait until the server knows of all changes so far: PostgreSQL notifies it also of its own, a moment later."""
    if database.is_sqlite:
        return
    came, before, last = asyncio.Event(), database.on_change, ""

    def on_change(tables: frozenset[str] | None) -> None:
        before(tables)
        if tables is not None and last in tables:
            came.set()

    database.on_change = on_change
    while not came.is_set():  # what is notified before the server listens does not reach it
        last = str(uuid4())
        notify = f"NOTIFY {CHANNEL}, '{last}'"
        await asyncio.to_thread(postgresql.server().execute, notify, str(database.url.database))
        with suppress(TimeoutError):
            await asyncio.wait_for(came.wait(), 0.5)
    database.on_change = before


def without_time_limit(conn: sa.Connection) -> None:
    """Let the transaction wait for a test as long as it likes: PostgreSQL ends it after two seconds otherwise."""
    if conn.dialect.name != "sqlite":
        conn.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))


async def copy_to(folder: Path) -> str:
    """Copies the template to `trunkline.db` in a folder, unless that exists; or to a database of PostgreSQL, the same
    one for the same folder, when the environment variable `TEST_DATABASE` is `postgresql`. Returns its URL."""
    if is_postgresql():
        return await asyncio.to_thread(_postgresql_of, folder)
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


@cache
def _postgresql_of(_folder: Path) -> str:
    return postgresql.server().take_database()


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
