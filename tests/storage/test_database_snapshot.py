"""Snapshots of the database while a server writes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from config.errors import StartupError
from storage import database_snapshot, tables
from storage.accounts import organizations
from storage.database import migrations
from storage.database.sqlite import database_copy, migrate


def _names(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as conn:
        return [name for (name,) in conn.execute("SELECT name FROM organizations ORDER BY name")]


def _put(conn: sa.Connection, name: str) -> None:
    organizations.create(conn, name)


def test_a_snapshot_does_not_block_writes_and_does_not_contain_them(tmp_path: Path) -> None:
    path, copy = tmp_path / "trunkline.db", tmp_path / "copy.db"
    migrate.migrate(path)
    at_once = sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool, connect_args={"timeout": 0})
    with at_once.begin() as conn:
        _put(conn, "before")
        conn.execute(sa.insert(tables.facts), [{"name": str(each), "value": "much"} for each in range(5000)])
    writes = 0

    def write() -> None:
        nonlocal writes
        if writes < 3:
            writes += 1
            with at_once.begin() as conn:
                _put(conn, f"meanwhile {writes}")

    database_copy.create(path, copy, write)
    assert writes == 3, "they came in the middle of it"
    assert _names(copy) == ["before"]
    assert _names(path) == ["before", "meanwhile 1", "meanwhile 2", "meanwhile 3"]
    with database_snapshot.open_snapshot(copy) as conn:
        assert (database_snapshot.revision(conn), database_snapshot.integrity_problem(conn)) == (migrations.HEAD, None)


def test_a_snapshot_contains_no_remains_of_deleted_rows(tmp_path: Path) -> None:
    path, copy = tmp_path / "trunkline.db", tmp_path / "copy.db"
    migrate.migrate(path)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA secure_delete=OFF")
        conn.execute("INSERT INTO facts VALUES ('told', ?)", ("a word in confidence " * 1000,))
        conn.commit()
        conn.execute("DELETE FROM facts WHERE name = 'told'")
        conn.commit()
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"a word in confidence" in path.read_bytes()
    database_copy.create(path, copy, lambda: None)
    assert b"a word in confidence" not in copy.read_bytes()


@pytest.mark.parametrize("content", [None, b"no database " * 1000])
def test_a_missing_or_foreign_file_raises_startup_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "trunkline.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StartupError, match=r"trunkline\.db cannot be copied"):
        database_copy.create(path, tmp_path / "copy.db", lambda: None)
    assert path.exists() == (content is not None)
