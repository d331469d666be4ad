"""Migrations of PostgreSQL: the resulting tables, several nodes at once, beside live transactions, and beside a node of
the version before."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from config.errors import StartupError
from storage.accounts import organizations
from storage.database import database_url, migrations
from storage.database.database import Database
from storage.database.postgresql import migrate
from storage.database.postgresql.connection import connect, open_session
from storage.database.postgresql.locks import statement_of
from storage.database.read_only import read_only
from storage.nodes import nodes
from storage.tables import metadata
from tests.peers import postgresql

OLD, NEW = migrations.HEAD, "9001"
NEXT: Final = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "9001", "{old}", None, None


def upgrade():
    op.execute("CREATE TABLE lighthouses (name TEXT)")
    op.execute("ALTER TABLE organizations ADD COLUMN harbour TEXT")
"""


@pytest.fixture
def url() -> Iterator[sa.URL]:
    """A migrated database of its own, which goes with the test, because its tables change."""
    yield database_url.parse(postgresql.server().take_database())


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this process the next version, with one migration more; `monkeypatch.undo` goes back."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrations.MIGRATIONS, folder)
    (folder / "versions" / "9001_lighthouses.py").write_text(NEXT.format(old=OLD))

    def become(compatible_from: str) -> None:
        monkeypatch.setattr(migrations, "MIGRATIONS", folder)
        monkeypatch.setattr(migrations, "HEAD", NEW)
        monkeypatch.setattr(migrations, "COMPATIBLE_FROM", compatible_from)

    return become


def _revision(url: sa.URL) -> str | None:
    with closing(connect(url)) as conn, conn.begin():
        return migrate.revision_of(conn)


def _differs(
    _: Any, __: Any, ___: Any, there: sa.types.TypeEngine[Any], wanted: sa.types.TypeEngine[Any]
) -> bool | None:
    """Counters of rows are wider than the INTEGER that SQLite asks for; Alembic compares other types."""
    return False if isinstance(there, sa.BigInteger) and type(wanted) is sa.Integer else None


def test_migrations_of_an_empty_database_create_the_tables_of_the_metadata(url: sa.URL) -> None:
    opts = {"compare_type": _differs, "include_name": lambda name, *_: name != "knowledge_index"}
    with closing(connect(url)) as conn, conn.begin():
        assert compare_metadata(MigrationContext.configure(conn, opts=opts), metadata) == []


def test_nodes_that_start_at_once_migrate_in_turns() -> None:
    url = database_url.parse(postgresql.server().empty_database())
    together = threading.Barrier(3)

    def start(_: int) -> None:
        together.wait()
        migrate.migrate(url)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(start, range(3)))
    assert _revision(url) == migrations.HEAD


async def test_a_node_of_the_version_before_starts_and_stores_after_the_migration(
    url: sa.URL, next_version: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = url.render_as_string(hide_password=False)
    running = Database(text, "old")
    await running.open()
    next_version(OLD)
    await asyncio.to_thread(migrate.migrate, url)
    monkeypatch.undo()
    started = Database(text, "restarted")
    await started.open()
    try:
        for name, database in (("a", running), ("b", started)):
            await database.write(partial(organizations.create, name=name))
        assert len(await running.read(organizations.all_of)) == 2
    finally:
        await running.close()
        await started.close()
    assert await asyncio.to_thread(_revision, url) == NEW
    assert len(await asyncio.to_thread(read_only, text, organizations.all_of)) == 2


def test_a_database_of_a_newer_version_that_is_not_compatible_is_refused(
    url: sa.URL, next_version: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    next_version(NEW)
    migrate.migrate(url)
    monkeypatch.undo()
    with pytest.raises(StartupError, match=rf"newer version of Trunkline \(revision {NEW}, this version has {OLD}\)"):
        migrate.migrate(url)
    with pytest.raises(StartupError, match=f"at revision {NEW}"):
        read_only(url.render_as_string(), lambda _: None)


@pytest.mark.parametrize(("state", "age_ms"), [("up", 0), ("draining", 0), ("down", 0), ("up", 7000)])
def test_a_migration_that_running_nodes_cannot_bear_waits_for_their_end(
    url: sa.URL, next_version: Callable[[str], None], state: str, age_ms: int
) -> None:
    with closing(connect(url)) as conn, conn.begin():
        conn.exec_driver_sql(
            "INSERT INTO nodes (name, instance, version, state, calls, capacity, started_at, last_seen_at) VALUES "
            f"('n1', 'i', '0', '{state}', 0, 1, 0, extract(epoch FROM clock_timestamp()) * 1000 - {age_ms})"
        )
    next_version(NEW)
    if state == "down" or age_ms:
        migrate.migrate(url)
    else:
        with pytest.raises(StartupError, match="in use by n1, of a version that cannot go on"):
            migrate.migrate(url)
    assert (_revision(url) == NEW) is (state == "down" or age_ms > 0)
    assert nodes.DOWN_AFTER.total_seconds() * 1000 == migrate.NODE_IS_DOWN_MS


@contextmanager
def _migrating(url: sa.URL) -> Iterator[threading.Thread]:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            migrate.migrate(url)
        except BaseException as error:  # noqa: BLE001 - the test gets it
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield thread
    thread.join(20)
    assert (thread.is_alive(), failed) == (False, [])


def _wait_for_a_waiting_session(conn: psycopg.Connection[Any]) -> None:
    deadline_s = time.monotonic() + 10
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while conn.execute(waiting).fetchone() == (0,):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_reads_go_on_while_a_migration_waits_for_a_long_one(
    url: sa.URL, next_version: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_S", 1)
    next_version(OLD)
    with open_session(url) as long, open_session(url) as other:
        long.execute("BEGIN")
        long.execute("SELECT name FROM organizations")
        long.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        with _migrating(url):
            _wait_for_a_waiting_session(other)
            assert other.execute("SELECT count(*) FROM organizations").fetchone() == (0,), "after the lock's timeout"
            assert _revision(url) == OLD
            long.execute("COMMIT")
    assert _revision(url) == NEW


def test_a_migration_waits_for_writes_under_way_and_holds_up_further_ones(
    url: sa.URL, next_version: Callable[[str], None]
) -> None:
    next_version(OLD)
    with open_session(url) as write, open_session(url) as other:
        write.execute("BEGIN")
        write.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        write.execute(statement_of("organization a"))
        with _migrating(url):
            _wait_for_a_waiting_session(other)
            other.execute("BEGIN")
            other.execute("SET LOCAL lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute(statement_of("organization b"))
            other.execute("ROLLBACK")
            write.execute("COMMIT")
    assert _revision(url) == NEW


def test_a_migration_that_gets_no_lock_says_who_may_hold_it(
    url: sa.URL, next_version: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "TURN_TIMEOUT_S", 1)
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_S", 1)
    next_version(OLD)
    with open_session(url) as dump:
        dump.execute("BEGIN")
        dump.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        dump.execute("LOCK organizations IN ACCESS SHARE MODE")
        with pytest.raises(StartupError, match=r"cannot be migrated: for 1 s other sessions .*pg_dump"):
            migrate.migrate(url)
    assert _revision(url) == OLD
