"""Opening and closing a database: errors, and threads that end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy as sa

from config.errors import StartupError
from storage.accounts import organizations
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.database.sqlite.engine import READERS
from tests.storage.transaction_gate import PATIENCE_S, Gate, add, names, names_in


async def test_a_database_that_is_not_open_raises_storage_unavailable(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'trunkline.db'}")
    for change in (database.close, database.open, database.close):
        await change()
        if change == database.open:
            assert await names(database) == []
            continue
        for transaction in (database.read, database.write):
            with pytest.raises(StorageUnavailable, match="not open"):
                await transaction(names_in)


@pytest.mark.parametrize("url", ["", "postgresql+asyncpg://x/y", "sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:"])
def test_an_unusable_url_raises_startup_error(url: str) -> None:
    with pytest.raises(StartupError, match=r"database\.url"):
        Database(url)


async def test_a_file_that_is_no_database_raises_startup_error(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("Dear reader, " * 1000)
    with pytest.raises(StartupError, match="not a database"):
        await Database(f"sqlite+aiosqlite:///{tmp_path / 'letter'}").open()


async def test_a_folder_that_cannot_be_created_raises_startup_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match="cannot be used"):
        await Database(f"sqlite+aiosqlite:///{tmp_path / 'file' / 'trunkline.db'}").open()


@contextmanager
def _no_thread_stays() -> Iterator[None]:
    """Checks that every thread started in the block ends, because a remaining one would keep the process alive."""
    before = set(threading.enumerate())
    yield
    started = set(threading.enumerate()) - before
    for thread in started:
        thread.join(PATIENCE_S / len(started))
    assert not [thread.name for thread in started if thread.is_alive()]


@pytest.mark.parametrize("number", [1, 2, 1 + READERS])
def test_a_connection_that_fails_raises_startup_error_and_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    connected: list[Path] = []
    connect = aiosqlite.connect

    def fails(path: Path, **options: Any) -> aiosqlite.Connection:
        connected.append(path)
        return connect(path if len(connected) < number else path / "no folder", **options)

    monkeypatch.setattr(aiosqlite, "connect", fails)
    with _no_thread_stays(), pytest.raises(StartupError, match="cannot be used: unable to open database file"):
        asyncio.run(Database(f"sqlite+aiosqlite:///{tmp_path / 'trunkline.db'}").open())
    assert len(connected) == number


@pytest.mark.parametrize("number", [1, 2, 1 + READERS])
def test_a_cancelled_open_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    connected: list[Path] = []
    connect = aiosqlite.connect

    def is_cancelled(path: Path, **options: Any) -> aiosqlite.Connection:
        connected.append(path)
        task = asyncio.current_task()
        if len(connected) == number and task is not None:
            task.cancel()
        return connect(path, **options)

    monkeypatch.setattr(aiosqlite, "connect", is_cancelled)
    with _no_thread_stays(), pytest.raises(asyncio.CancelledError):
        asyncio.run(Database(f"sqlite+aiosqlite:///{tmp_path / 'trunkline.db'}").open())
    assert len(connected) == number


async def test_closing_completes_a_running_write_and_rejects_new_ones(database: Database) -> None:
    gate = Gate()

    def pair(conn: sa.Connection) -> None:
        organizations.create(conn, "a")
        gate.wait()
        organizations.create(conn, "b")

    writing = asyncio.create_task(database.write(pair))
    await gate.reached()
    closing_ = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    with pytest.raises(StorageUnavailable, match="not open"):
        await add(database, "late")
    assert not closing_.done()
    gate.open()
    await closing_
    await writing
    await database.open()
    assert await names(database) == ["a", "b"]


def test_a_cancelled_close_leaves_no_thread(tmp_path: Path) -> None:
    async def cancel() -> None:
        database = Database(f"sqlite+aiosqlite:///{tmp_path / 'trunkline.db'}")
        await database.open()
        gate = Gate()
        writing = asyncio.create_task(database.write(lambda _: gate.wait()))
        await gate.reached()
        closing_ = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        closing_.cancel()
        gate.open()
        await asyncio.gather(writing, closing_, return_exceptions=True)
        assert closing_.cancelled()

    with _no_thread_stays():
        asyncio.run(cancel())
