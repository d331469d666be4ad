"""Transactions: durability, rollback, concurrency, errors."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
import structlog
from sqlalchemy.engine.interfaces import CacheStats
from structlog.testing import capture_logs

from config.errors import Conflict
from storage.accounts import api_keys, organizations
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from tests.storage.transaction_gate import PATIENCE_S, Gate, add, names, names_in


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_transaction_that_raises_is_rolled_back(database: Database) -> None:
    def twice(conn: sa.Connection) -> None:
        organizations.create(conn, "half")
        organizations.create(conn, "half")

    with pytest.raises(Conflict):
        await database.write(twice)
    assert await names(database) == []


async def test_stop_iteration_in_a_transaction_becomes_runtime_error(database: Database) -> None:
    def no_next(conn: sa.Connection) -> str:
        organizations.create(conn, "half")
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        async with asyncio.timeout(PATIENCE_S):
            await database.write(no_next)
    await add(database, "next")
    assert await names(database) == ["next"]


async def test_connections_share_compiled_statements(database: Database) -> None:
    statement = sa.select(sa.literal(1).label(f"once {uuid4()}"))

    def compiled_before(conn: sa.Connection) -> bool:
        return conn.execute(statement).context.cache_hit is CacheStats.CACHE_HIT

    assert not await database.write(compiled_before)
    assert await database.read(compiled_before)
    assert await database.read(compiled_before, priority="calls")


async def test_a_read_sees_a_consistent_snapshot(database: Database) -> None:
    gate = Gate()

    def look_twice(conn: sa.Connection) -> list[list[str]]:
        before = names_in(conn)
        gate.wait()
        return [before, names_in(conn)]

    reading = asyncio.create_task(database.read(look_twice))
    await gate.reached()
    await add(database, "later")
    gate.open()
    assert await reading == [[], []]
    assert await names(database) == ["later"]


async def test_writes_run_in_the_order_of_their_calls(database: Database) -> None:
    def numbered(number: int) -> Callable[[sa.Connection], object]:
        return lambda conn: organizations.create(conn, f"{number} after {len(names_in(conn))}")

    await asyncio.gather(*(database.write(numbered(number)) for number in range(10)))
    assert set(await names(database)) == {f"{number} after {number}" for number in range(10)}


async def test_writes_of_two_processes_are_serialized(database: Database) -> None:
    beside = Database(str(database.url))
    await beside.open()

    def counted(conn: sa.Connection) -> None:
        organizations.create(conn, str(len(names_in(conn))))

    await asyncio.gather(*(each.write(counted) for each in (database, beside) * 10))
    await beside.close()
    assert set(await names(database)) == {str(count) for count in range(20)}


async def test_a_read_does_not_wait_for_a_write(database: Database) -> None:
    gate = Gate()

    def write(conn: sa.Connection) -> None:
        organizations.create(conn, "new")
        gate.wait()

    writing = asyncio.create_task(database.write(write))
    await gate.reached()
    assert await names(database) == []
    gate.open()
    await writing
    assert await names(database) == ["new"]


async def test_a_read_does_not_wait_for_a_read_whose_caller_was_cancelled(database: Database) -> None:
    gate = Gate()
    slow = asyncio.create_task(database.read(lambda _: gate.wait()))
    await gate.reached()
    await _cancelled(slow)
    async with asyncio.timeout(PATIENCE_S / 2):
        assert await names(database) == []
    gate.open()


async def test_commits_are_synced_and_foreign_keys_are_enforced(database: Database) -> None:
    def pragmas(conn: sa.Connection) -> list[object]:
        each = ("journal_mode", "synchronous", "foreign_keys")
        return [conn.execute(sa.text(f"PRAGMA {name}")).scalar_one() for name in each]

    for transaction in (database.read, database.write):
        assert await transaction(pragmas) == ["wal", 2, 1]


async def test_log_lines_of_a_transaction_have_the_context_of_its_caller(database: Database) -> None:
    def log(_: sa.Connection) -> None:
        structlog.get_logger().info("inside")

    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
        for transaction in (database.read, database.write):
            with structlog.contextvars.bound_contextvars(request_id="abc"):
                await transaction(log)
            await transaction(log)
    assert [line.get("request_id") for line in logs] == ["abc", None, "abc", None]


async def test_a_full_disk_raises_storage_unavailable_and_loses_nothing(database: Database) -> None:
    def fill(conn: sa.Connection) -> None:
        organizations.create(conn, "kept")
        pages = conn.execute(sa.text("PRAGMA page_count")).scalar_one()
        conn.execute(sa.text(f"PRAGMA max_page_count={pages}"))

    await database.write(fill)
    with pytest.raises(StorageUnavailable) as caught:
        await add(database, "x" * 100_000)
    assert caught.value.cause == "the disk is full"
    assert caught.value.message == "Service temporarily unavailable"
    await database.write(lambda conn: conn.execute(sa.text("PRAGMA max_page_count=1000000")))
    await add(database, "after")
    assert await names(database) == ["kept", "after"]


@contextmanager
def _no_file_grows_beyond(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_commit_that_meets_a_full_disk_is_rolled_back(database: Database) -> None:
    done: list[None] = []

    def much(conn: sa.Connection) -> None:
        organizations.create(conn, "x" * 100_000)
        done.append(None)

    await add(database, "kept")
    log_size = (await asyncio.to_thread(Path(f"{database.path}-wal").stat)).st_size
    with _no_file_grows_beyond(log_size + 50_000), pytest.raises(StorageUnavailable) as caught:
        await database.write(much)
    assert caught.value.cause == "the disk cannot be read or written"
    assert done == [None]
    await add(database, "after")
    assert await names(database) == ["kept", "after"]


async def test_a_commit_that_violates_a_constraint_is_rolled_back(database: Database) -> None:
    def orphan(conn: sa.Connection) -> None:
        conn.execute(sa.text("PRAGMA defer_foreign_keys=ON"))
        organizations.create(conn, "half")
        api_keys.create(conn, "unknown")

    with pytest.raises(sa.exc.IntegrityError):
        await database.write(orphan)
    await add(database, "next")
    assert await names(database) == ["next"]


async def test_a_lock_of_another_process_raises_storage_unavailable(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.database.sqlite.connection_thread.BUSY_TIMEOUT_S", 0.01)
    impatient = Database(str(database.url))
    await impatient.open()
    with closing(await asyncio.to_thread(sqlite3.connect, database.path, check_same_thread=False)) as other:
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
        with pytest.raises(StorageUnavailable) as caught:
            await add(impatient, "too early")
        assert caught.value.cause == "the database is locked by another process"
        assert await names(impatient) == []
        await asyncio.to_thread(other.rollback)
    await add(impatient, "now")
    await impatient.close()
    assert await names(database) == ["now"]


WRITER = """
import asyncio, sys
from storage.accounts import organizations
from storage.database.database import Database

async def main():
    database = Database(sys.argv[1])
    await database.open()
    for number in range(100_000):
        await database.write(lambda conn: organizations.create(conn, str(number)))
        print(number, flush=True)

asyncio.run(main())
"""


def test_kill_9_loses_no_committed_row(tmp_path: Path) -> None:
    """Reported rows are stored, without gaps, and the file is intact."""
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


async def test_a_write_completes_when_its_caller_is_cancelled(database: Database) -> None:
    gate = Gate()

    def pair(conn: sa.Connection) -> None:
        organizations.create(conn, "a")
        gate.wait()
        organizations.create(conn, "b")

    running = asyncio.create_task(database.write(pair))
    await gate.reached()
    waiting = asyncio.create_task(add(database, "c"))
    await asyncio.sleep(0)
    await _cancelled(running)
    await _cancelled(waiting)
    assert await names(database) == []
    gate.open()
    await add(database, "d")
    assert await names(database) == ["a", "b", "c", "d"]


async def test_a_write_that_raises_after_its_caller_was_cancelled_is_rolled_back_and_blocks_no_other(
    database: Database,
) -> None:
    for _ in range(3):
        gate = Gate()

        def half(conn: sa.Connection, gate: Gate = gate) -> None:
            organizations.create(conn, "half")
            gate.wait()
            raise Conflict("no more")

        task = asyncio.create_task(database.write(half))
        await gate.reached()
        await _cancelled(task)
        gate.open()
    await add(database, "next")
    assert await names(database) == ["next"]


async def test_a_write_cancelled_at_any_moment_is_complete_or_absent(database: Database) -> None:
    def pair(number: int) -> Callable[[sa.Connection], None]:
        def create(conn: sa.Connection) -> None:
            organizations.create(conn, f"{number} a")
            organizations.create(conn, f"{number} b")

        return create

    for number in range(40):
        task = asyncio.create_task(database.write(pair(number)))
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await add(database, "next")
    whole = {f"{number} {half}" for number in range(1, 40) for half in "ab"}
    assert set(await names(database)) == {*whole, "next"}


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(StorageUnavailable, match="read-only"):
        await database.read(lambda conn: organizations.create(conn, "never"))
    assert await names(database) == []
