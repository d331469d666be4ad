"""Transactions: what was committed stays, what was not leaves nothing, trouble has a name."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from config.errors import Conflict, StartupError
from storage import organizations
from storage.database import Database, StorageTrouble


async def _names(database: Database) -> list[str]:
    async with database.read() as conn:
        return [each.name for each in await organizations.all_of(conn)]


async def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    with pytest.raises(Conflict):
        async with database.write() as conn:
            await organizations.create(conn, "half")
            await organizations.create(conn, "half")
    assert await _names(database) == []


async def test_a_read_sees_one_moment(database: Database) -> None:
    async with database.read() as before:
        assert await organizations.all_of(before) == []
        async with database.write() as conn:
            await organizations.create(conn, "later")
        assert await organizations.all_of(before) == []
    assert await _names(database) == ["later"]


async def test_writes_take_turns(database: Database) -> None:
    async def add(number: int) -> None:
        async with database.write() as conn:
            count = len(await organizations.all_of(conn))
            await organizations.create(conn, f"{number} after {count}")

    await asyncio.gather(*(add(number) for number in range(10)))
    assert sorted(int(name.split()[-1]) for name in await _names(database)) == list(range(10))


async def test_every_commit_is_synced_and_foreign_keys_hold(database: Database) -> None:
    for transaction in (database.read, database.write):
        async with transaction() as conn:
            pragmas = [
                (await conn.execute(sa.text(f"PRAGMA {name}"))).scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            ]
        assert pragmas == ["wal", 2, 1]


async def test_a_full_disk_is_named_and_loses_nothing(database: Database) -> None:
    async with database.write() as conn:
        await organizations.create(conn, "kept")
        pages = (await conn.execute(sa.text("PRAGMA page_count"))).scalar_one()
        await conn.execute(sa.text(f"PRAGMA max_page_count={pages}"))
    with pytest.raises(StorageTrouble) as caught:
        async with database.write() as conn:
            await organizations.create(conn, "x" * 100_000)
    assert caught.value.cause == "the disk is full"
    assert caught.value.message == "Service temporarily unavailable"
    async with database.write() as conn:
        await conn.execute(sa.text("PRAGMA max_page_count=1000000"))
        await organizations.create(conn, "after")
    assert await _names(database) == ["kept", "after"]


async def test_a_lock_that_lasts_is_named(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.database.BUSY_TIMEOUT_S", 0.01)
    impatient = Database(str(database.url))
    async with database.write():
        with pytest.raises(StorageTrouble, match="locked by another process"):
            async with impatient.write():
                pass
    async with impatient.write() as conn:
        await organizations.create(conn, "now")
    await impatient.close()
    assert await _names(database) == ["now"]


@pytest.mark.parametrize("url", ["", "postgresql+asyncpg://x/y", "sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:"])
def test_an_unusable_url_stops_the_start(url: str) -> None:
    with pytest.raises(StartupError, match=r"database\.url"):
        Database(url)


async def test_a_file_that_is_no_database_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("Dear reader, " * 1000)
    with pytest.raises(StartupError, match="not a database"):
        await Database(f"sqlite+aiosqlite:///{tmp_path / 'letter'}").open()


async def test_a_folder_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match="cannot be used"):
        await Database(f"sqlite+aiosqlite:///{tmp_path / 'file' / 'trunkline.db'}").open()


WRITER = """
import asyncio, sys
from storage import organizations
from storage.database import Database

async def main():
    database = Database(sys.argv[1])
    await database.open()
    for number in range(100_000):
        async with database.write() as conn:
            await organizations.create(conn, str(number))
        print(number, flush=True)

asyncio.run(main())
"""


def test_kill_9_loses_no_committed_row(tmp_path: Path) -> None:
    """What the writer reported was committed; the rows are an unbroken series, and the file is sound."""
    path = tmp_path / "trunkline.db"
    reported = -1
    for _ in range(3):
        path.unlink(missing_ok=True)
        for rest in tmp_path.glob("trunkline.db-*"):
            rest.unlink()
        command = [sys.executable, "-c", WRITER, f"sqlite+aiosqlite:///{path}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.getcwd()}) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                reported = int(line)
                if reported == 20:
                    writer.send_signal(signal.SIGKILL)
        with closing(sqlite3.connect(path)) as conn:
            stored = sorted(int(name) for (name,) in conn.execute("SELECT name FROM organizations"))
            assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert reported >= 20
        assert stored == list(range(len(stored)))
        assert len(stored) in (reported + 1, reported + 2)


async def test_a_write_that_is_cancelled_leaves_nothing_and_blocks_nobody(database: Database) -> None:
    inside = asyncio.Event()

    async def never_ends() -> None:
        async with database.write() as conn:
            await organizations.create(conn, "half")
            inside.set()
            await asyncio.Event().wait()

    for _ in range(3):
        task = asyncio.create_task(never_ends())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        inside.clear()
    async with database.write() as conn:
        await organizations.create(conn, "next")
    assert await _names(database) == ["next"]


async def test_writes_cancelled_at_any_moment_are_whole_or_nothing(database: Database) -> None:
    async def pair(number: int) -> None:
        async with database.write() as conn:
            await organizations.create(conn, f"{number} a")
            await organizations.create(conn, f"{number} b")

    for number in range(40):
        task = asyncio.create_task(pair(number))
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    names = await _names(database)
    halves = {name.split()[0] for name in names}
    assert len(names) == 2 * len(halves)
    async with database.write() as conn:
        await organizations.create(conn, "next")
