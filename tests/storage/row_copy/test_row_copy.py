"""A copy of all rows, in every direction, also one that is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from config.clock import utc_now
from config.errors import StartupError
from storage import tables
from storage.database import server_lock
from storage.database.database import Database
from storage.nodes.nodes import Node, store_heartbeat
from storage.row_copy import row_copy
from storage.row_copy.copied_tables import copied_tables
from storage.row_copy.row_copy import copy_database
from storage.row_copy.sqlite_side import SqliteSide
from tests.peers import postgresql
from tests.storage.row_copy import whole_database

KILLED = """
import os, signal, sys
from sqlalchemy.engine import make_url
from storage.row_copy import row_copy

inserted = []

def insert(target, step, batch, insert=row_copy._insert):
    insert(target, step, batch)
    inserted.append(step.name)
    if inserted.count("calls") == 2:
        os.kill(os.getpid(), signal.SIGKILL)  # within the transaction

row_copy._insert, row_copy.MAX_ROWS = insert, 3
row_copy.copy_database(make_url(sys.argv[1]), make_url(sys.argv[2]))
"""
T = TypeVar("T")
Empty = Callable[[str], sa.URL]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, sa.URL]:
    """A database with rows in every table, on each engine."""
    path = tmp_path_factory.mktemp("whole") / "trunkline.db"
    whole_database.fill(path)
    sqlite, on_server = make_url(f"sqlite+aiosqlite:///{path}"), make_url(postgresql.server().empty_database())
    assert not copy_database(sqlite, on_server).differs
    return {"sqlite": sqlite, "postgresql": on_server}


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Empty]:
    """What gives a new database of an engine. On the server its owner has no other rights."""

    def create(engine: str) -> sa.URL:
        if engine == "sqlite":
            return make_url(f"sqlite+aiosqlite:///{tmp_path / 'copy.db'}")
        server = postgresql.server()
        url = make_url(server.empty_database())
        server.execute("DROP ROLE IF EXISTS plain")
        server.execute("CREATE ROLE plain LOGIN")
        server.execute(f"ALTER DATABASE {url.database} OWNER TO plain")
        owned.append(str(url.database))
        return url.set(username="plain")

    owned: list[str] = []
    yield create
    for name in owned:
        postgresql.server().execute(f"DROP DATABASE {name}")


def _open_and_add(url: sa.URL) -> int:
    """Opens the database as a server does, and adds a row; returns its number."""

    def add(conn: sa.Connection) -> int:
        values = {"organization_id": "key 1", "created_at": utc_now(), "amount": 1, "balance_after": 1, "made_by": "x"}
        insert = sa.insert(tables.balance_changes).values(**values).returning(tables.balance_changes.c.id)
        return conn.execute(insert).scalar_one()

    return asyncio.run(_within(url, add))


async def _within(url: sa.URL, work: Callable[[sa.Connection], T]) -> T:
    database = Database(url.render_as_string(hide_password=False))
    try:
        await database.open()
        return await database.write(work)
    finally:
        await database.close()


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
@pytest.mark.parametrize("source", ["sqlite", "postgresql"])
def test_every_row_is_copied_and_new_rows_get_the_next_numbers(
    whole: dict[str, sa.URL], empty: Empty, source: str, target: str
) -> None:
    url = empty(target)
    summary = copy_database(whole[source], url)
    assert [each for each in summary.comparisons if each.differs] == []
    assert {each.table: each.source.rows for each in summary.comparisons} == {
        each.name: whole_database.ROWS for each in copied_tables()
    }
    assert summary.copied_rows == whole_database.ROWS * len(copied_tables())
    assert _open_and_add(url) == whole_database.ROWS + 1
    with pytest.raises(StartupError, match="has rows in the table"):
        copy_database(whole[source], url)


@pytest.mark.parametrize(("source", "target"), [("sqlite", "postgresql"), ("postgresql", "sqlite")])
def test_a_killed_copy_goes_on_with_the_batch_that_it_had_not_committed(
    whole: dict[str, sa.URL], empty: Empty, source: str, target: str
) -> None:
    url = empty(target)
    urls = [each.render_as_string(hide_password=False) for each in (whole[source], url)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *urls], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with pytest.raises(StartupError, match="is an incomplete copy"):
        _open_and_add(url)
    with pytest.raises(StartupError, match="is an incomplete copy"):
        copy_database(url, empty("sqlite").set(database=f"{whole['sqlite'].database}.other"))
    summary = copy_database(whole[source], url)
    names = [each.name for each in copied_tables()]
    missing = 4 + whole_database.ROWS * (len(names) - names.index("calls") - 1)
    assert (summary.resumed, summary.differs, summary.copied_rows) == (True, False, missing)
    assert _open_and_add(url) == whole_database.ROWS + 1


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_a_row_that_differs_is_found_and_leaves_the_copy_unusable(
    whole: dict[str, sa.URL], empty: Empty, target: str
) -> None:
    url = empty(target)
    changed: list[str] = []

    def change(text: str, done: int, total: int) -> None:
        if text.startswith("comparing") and not changed:
            changed.append(text)
            plain = url.set(drivername="sqlite") if target == "sqlite" else url
            engine = sa.create_engine(plain, poolclass=sa.NullPool)
            with engine.begin() as conn:
                conn.exec_driver_sql("UPDATE tools SET name = 'other' WHERE id = 'key 3'")

    summary = copy_database(whole["sqlite"], url, change)
    assert [each.table for each in summary.comparisons if each.differs] == ["tools"]
    with pytest.raises(StartupError, match="is an incomplete copy"):
        _open_and_add(url)
    assert copy_database(whole["sqlite"], url).differs


def test_u_0000_which_postgresql_cannot_store_becomes_u_fffd(empty: Empty, tmp_path: Path) -> None:
    path = tmp_path / "with-nul.db"
    whole_database.fill(path)
    with closing(SqliteSide(path)) as side, side.transaction():
        side._raw.execute("UPDATE organizations SET name = ? WHERE id = 'key 2'", ("a\0b",))
    url = empty("postgresql")
    summary = copy_database(make_url(f"sqlite+aiosqlite:///{path}"), url)
    assert not summary.differs
    assert [(each.table, each.column, each.key) for each in summary.replaced] == [("organizations", "name", ("key 2",))]
    name = sa.select(tables.organizations.c.name).where(tables.organizations.c.id == "key 2")
    assert asyncio.run(_within(url, lambda conn: conn.execute(name).scalar_one())) == "a\ufffdb"


def test_a_value_that_the_target_cannot_store_is_named_with_its_table_and_rows(empty: Empty, tmp_path: Path) -> None:
    path = tmp_path / "too-large.db"
    whole_database.fill(path)
    with closing(SqliteSide(path)) as side, side.transaction():
        side._raw.execute("UPDATE organizations SET max_calls = 5000000000 WHERE id = 'key 2'")
    with pytest.raises(StartupError, match=r"integer.*table organizations, rows \('key 1',\) to \('key 7',\)"):
        copy_database(make_url(f"sqlite+aiosqlite:///{path}"), empty("postgresql"))


def test_databases_in_use_and_those_of_others_are_refused(
    whole: dict[str, sa.URL], empty: Empty, tmp_path: Path
) -> None:
    path = Path(str(whole["sqlite"].database))
    url = empty("postgresql")
    with server_lock.lock_database(path), pytest.raises(StartupError, match="another server"):
        copy_database(whole["sqlite"], url)
    with pytest.raises(StartupError, match="the target is the source"):
        copy_database(whole["sqlite"], whole["sqlite"])
    postgresql.server().execute("CREATE TABLE of_others (id integer)", str(url.database))
    with pytest.raises(StartupError, match="tables that are not Trunkline's"):
        copy_database(whole["sqlite"], url)
    other = tmp_path / "other.db"
    whole_database.fill(other)
    assert copy_database(make_url(f"sqlite+aiosqlite:///{other}"), empty("sqlite")).resumed is False


def test_a_node_that_sends_heartbeats_prevents_a_copy(whole: dict[str, sa.URL], empty: Empty) -> None:
    now = utc_now()
    node = Node("berlin", "1", None, "1", "up", 0, 1, now, now)
    asyncio.run(_within(whole["postgresql"], lambda conn: store_heartbeat(conn, node)))
    with pytest.raises(StartupError, match="in use by berlin: stop the servers first"):
        copy_database(whole["postgresql"], empty("sqlite"))
    asyncio.run(_within(whole["postgresql"], lambda conn: store_heartbeat(conn, replace(node, state="down"))))
    assert not copy_database(whole["postgresql"], empty("sqlite")).differs


def test_an_incomplete_copy_of_another_database_is_refused(
    whole: dict[str, sa.URL], empty: Empty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StartupError("enough")

    url = empty("sqlite")
    with monkeypatch.context() as patched, pytest.raises(StartupError, match="enough"):
        patched.setattr(row_copy, "_insert", fail)
        copy_database(whole["sqlite"], url)
    other = tmp_path / "other.db"
    whole_database.fill(other)
    with closing(SqliteSide(other)) as side, side.transaction():
        side.set_fact("secret_key_proof", "another")
    with pytest.raises(StartupError, match="incomplete copy of another one"):
        copy_database(make_url(f"sqlite+aiosqlite:///{other}"), url)
    assert not copy_database(whole["sqlite"], url).differs


def test_no_error_shows_the_password(whole: dict[str, sa.URL]) -> None:
    for url in (
        "postgresql+psycopg://user:se-cret@127.0.0.1:1/x",
        "postgresql+psycopg://user:a@se-cret@127.0.0.1/x",
        "mysql://user:se-cret@127.0.0.1/x",
        "postgresql+psycopg://user:se-cret@127.0.0.1:port/x",
    ):
        with pytest.raises(StartupError) as found:
            Database(url)
            copy_database(whole["sqlite"], make_url(url))
        assert "se-cret" not in str(found.value)
