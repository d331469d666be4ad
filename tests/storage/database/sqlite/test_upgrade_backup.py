"""Upgrades of a database: the copy from before them, failures midway, and the way back."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from config.errors import StartupError
from storage.database import migrations, server_lock
from storage.database.sqlite import migrate, upgrade_backup
from tests.trunkline.small_disk import tiny_disk

OLD, NEW = migrations.HEAD, "9001"
WORKING = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "9001", "{old}", None, None


def upgrade():
    op.execute("CREATE TABLE lighthouses (name TEXT)")
    op.execute("UPDATE organizations SET name = name || ' at sea'")
    op.execute("ALTER TABLE organizations DROP COLUMN quotas")
"""
FAILING = WORKING + "    raise KeyError('no such harbour')\n"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of the version before, with an organization."""
    path = tmp_path / "trunkline.db"
    migrate.migrate(path)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("INSERT INTO organizations (id, name, plan, created_at) VALUES ('o', 'office', 'free', 1)")
    return path


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this process the next version, with one migration more."""

    def become(migration: str) -> None:
        folder = tmp_path / "next" / "migrations"
        shutil.copytree(migrations.MIGRATIONS, folder)
        (folder / "versions" / "9001_lighthouses.py").write_text(migration.format(old=OLD))
        monkeypatch.setattr(migrations, "MIGRATIONS", folder)
        monkeypatch.setattr(migrations, "HEAD", NEW)

    return become


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as conn:
        tables = [name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        schema = [str(row) for row in conn.execute("SELECT name, sql FROM sqlite_master ORDER BY name")]
        return schema + [f"{name} {row}" for name in tables for row in conn.execute(f'SELECT * FROM "{name}"')]


def _copies(path: Path) -> list[Path]:
    return sorted((path.parent / upgrade_backup.FOLDER).glob("*"))


def test_a_new_database_and_one_without_missing_migrations_are_not_copied(database: Path) -> None:
    migrate.migrate(database)
    assert not (database.parent / upgrade_backup.FOLDER).exists()


def test_an_upgrade_keeps_a_private_copy_with_the_data_from_before(
    database: Path, next_version: Callable[[str], None]
) -> None:
    before = _dump(database)
    next_version(WORKING)
    migrate.migrate(database)
    with closing(sqlite3.connect(database)) as conn:
        assert conn.execute("SELECT name FROM organizations").fetchall() == [("office at sea",)]
    (copy,) = _copies(database)
    assert copy.name.startswith(f"trunkline-{OLD}-2")
    assert {row for row in _dump(copy) if "organizations" in row} == {row for row in before if "organizations" in row}
    assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_the_previous_version_goes_on_from_the_copy(
    database: Path, next_version: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as upgraded:
        upgraded.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS)
        next_version(WORKING)
        migrate.migrate(database)
    monkeypatch.undo()
    (copy,) = _copies(database)
    with pytest.raises(StartupError) as refused:
        migrate.migrate(database)
    assert str(refused.value) == (
        f"the database {database} was written by a newer version of Trunkline (revision {NEW}, this version has "
        f"{OLD}): install that version again, or go back to the copy from before its upgrade: {copy}"
    )
    shutil.copy(copy, database)
    migrate.migrate(database)
    with closing(sqlite3.connect(database)) as conn:
        assert conn.execute("SELECT name FROM organizations").fetchall() == [("office",)]


def test_a_migration_that_fails_midway_leaves_the_data_as_it_was(
    database: Path, next_version: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _dump(database)
    next_version(FAILING)
    for _ in range(2):  # a service manager starts it again
        with pytest.raises(StartupError, match=r"failed and was rolled back, the data is as before.*no such harbour"):
            migrate.migrate(database)
        assert _dump(database) == before
        assert _copies(database) == [], "the copy of unchanged data is not needed"
    monkeypatch.undo()
    migrate.migrate(database)


KILLED = """
import os, signal, sys
from pathlib import Path
from storage.database import migrations
from storage.database.sqlite import migrate
migrations.MIGRATIONS, migrations.HEAD = Path(sys.argv[1]), "9001"
migrate.migrate(Path(sys.argv[2]))
"""


def test_a_start_that_is_killed_during_a_migration_leaves_the_data_as_it_was(
    database: Path, next_version: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _dump(database)
    next_version(WORKING + "    import os\n    os.kill(os.getpid(), 9)\n")
    command = [sys.executable, "-c", KILLED, str(migrations.MIGRATIONS), str(database)]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False).returncode == -9
    assert _dump(database) == before
    monkeypatch.undo()
    migrate.migrate(database)


def test_an_upgrade_without_the_space_for_its_copy_is_refused_and_changes_nothing(
    tmp_path: Path, database: Path, next_version: Callable[[str], None]
) -> None:
    with tiny_disk(tmp_path / "small", "16m"):
        path = Path(shutil.copy(database, tmp_path / "small" / "trunkline.db"))
        before = _dump(path)
        next_version(WORKING)
        with pytest.raises(StartupError, match=r"needs \d+ MB of free space .*, and the disk has 1\d MB: make room"):
            migrate.migrate(path)
        assert _dump(path) == before
        assert _copies(path) == []


HOLDER = """
import sys
from pathlib import Path
from storage.database import server_lock
with server_lock.lock_database(Path(sys.argv[1])):
    Path(sys.argv[1] + server_lock.DATABASE_SUFFIX).write_text(sys.argv[2])
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_command_of_the_new_version_does_not_migrate_under_a_server_of_the_old_one(
    database: Path, next_version: Callable[[str], None]
) -> None:
    before = _dump(database)
    number = str(os.getpid())  # as in containers, where each server is process 1
    command = [sys.executable, "-c", HOLDER, os.path.realpath(database), number]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdin is not None
        assert server.stdout.readline() == b"locked\n"
        migrate.migrate(database)  # of the same version
        next_version(WORKING)
        with pytest.raises(StartupError, match=rf"in use by a server of an older version \(process {number}\)"):
            migrate.migrate(database)
        assert _dump(database) == before
        server.stdin.close()
    with server_lock.lock_database(database):  # its own lock does not keep a server from its upgrade
        migrate.migrate(database)


def test_copies_are_kept_for_14_days_and_three_at_most(database: Path) -> None:
    folder = database.parent / upgrade_backup.FOLDER
    folder.mkdir()
    now_s, day_s = time.time(), 86_400.0
    for day in range(1, 6):
        copy = folder / f"trunkline-00{day}0-2026010{day}T000000Z.db"
        copy.write_bytes(b"")
        os.utime(copy, (now_s, now_s - (15 if day == 4 else 1) * day_s))
    (folder / "of-another-program.db").write_bytes(b"")
    upgrade_backup.prune(database, now_s)
    assert [path.name for path in _copies(database)] == [
        "of-another-program.db", "trunkline-0030-20260103T000000Z.db", "trunkline-0050-20260105T000000Z.db",
    ]  # fmt: skip
    assert upgrade_backup.newest(database) == folder / "trunkline-0050-20260105T000000Z.db"


def test_starts_that_are_killed_during_migrations_pile_up_no_copies(database: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for day in range(1, 6):
            patch.setattr(upgrade_backup, "utc_now", lambda day=day: datetime(2026, 1, day, tzinfo=UTC))
            upgrade_backup.create(database, "0020")
    assert [path.stem.split("-")[-1][:8] for path in _copies(database)] == ["20260103", "20260104", "20260105"]
