"""The tables that the migrations make are the tables that the code knows, however a start goes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from config.errors import StartupError
from storage import schema
from storage.database import Database
from storage.tables import metadata


def _open(path: Path) -> None:
    async def once() -> None:
        database = Database(f"sqlite+aiosqlite:///{path}")
        await database.open()
        await database.close()

    asyncio.run(once())


def _same_tables(path: Path) -> bool:
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    opts = {"compare_type": True, "include_name": lambda name, *_: not str(name).startswith("knowledge_index")}
    with engine.connect() as conn:
        return not compare_metadata(MigrationContext.configure(conn, opts=opts), metadata)


def test_migrations_from_nothing_make_the_known_tables(tmp_path: Path) -> None:
    _open(tmp_path / "new.db")
    assert _same_tables(tmp_path / "new.db")


def test_the_newest_migration_is_the_one_that_starts_expect() -> None:
    assert ScriptDirectory.from_config(schema.alembic_settings()).get_heads() == [schema.HEAD]


def test_a_second_open_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "twice.db"
    _open(path)
    before = path.read_bytes()
    _open(path)
    assert path.read_bytes() == before


def test_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    _open(tmp_path / "mine.db")
    assert (tmp_path / "mine.db").stat().st_mode & 0o077 == 0


STARTER = """
import sys
from pathlib import Path
import alembic.command, alembic.config, sqlalchemy.dialects.sqlite
from storage.schema import bring_up_to_date
print("loaded", flush=True)
sys.stdin.read()
bring_up_to_date(Path(sys.argv[1]))
"""


def test_processes_that_start_together_all_succeed(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    command = [sys.executable, "-c", STARTER, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with ExitStack() as started:
        starts = [
            started.enter_context(
                subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(4)
        ]
        for start in starts:
            assert start.stdout is not None
            assert start.stdout.readline() == b"loaded\n"
        for start in starts:
            assert start.stdin is not None
            start.stdin.close()
        assert [start.wait() for start in starts] == [0, 0, 0, 0]
    assert _same_tables(path)


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "broken.db"
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE calls (id TEXT)")
    with pytest.raises(StartupError, match="already exists"):
        _open(path)
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT name FROM sqlite_master").fetchall() == [("calls",)]


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "future.db"
    _open(path)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StartupError, match=r"newer version of Trunkline \(revision 9999\)"):
        _open(path)
