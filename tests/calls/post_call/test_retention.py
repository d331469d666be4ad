"""Retention removes what is due, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from calls.post_call.retention import MAX_BATCH, TARGET_TRANSACTION_S, Retention, next_batch_size
from storage import tables
from storage.calls import calls, deletion, recordings
from storage.calls.calls import Call
from storage.database.database import Database
from storage.database.migrate import migrate
from tests.calls.post_call.past_calls import SAID, keeps, left_of, on_disk, past_call, record

NOW = datetime(2026, 11, 22, 6, 0, tzinfo=UTC)
DAY = timedelta(days=1)
OLD = NOW - 30 * DAY


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh database file, to be copied: to make one takes longer than a test."""
    path = tmp_path_factory.mktemp("made") / "trunkline.db"
    migrate(path)
    return path


@pytest.fixture
async def database(tmp_path: Path, made: Path) -> AsyncIterator[Database]:
    shutil.copy(made, tmp_path / "trunkline.db")
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/trunkline.db")
    await database.open()
    yield database
    await database.close()


async def test_recordings_go_files_and_all_and_the_rest_of_the_call_stays(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> tuple[Call, Call, Call]:
        owner, other = keeps(conn, keep_recordings_days=29).id, keeps(conn).id
        return past_call(conn, owner, OLD), past_call(conn, owner, NOW - 28 * DAY), past_call(conn, other, OLD)

    made = await database.write(store)
    files = [record(tmp_path, each) for each in made]
    removed = await Retention(database, tmp_path).run_once(NOW)
    assert (removed.recordings, removed.transcripts, removed.calls, removed.files) == (1, 0, 0, 1)
    after = [await database.read(partial(calls.get_by_id, call_id=each.id)) for each in made]
    assert after == [replace(made[0], recorded=False), made[1], made[2]]
    assert [file.exists() for file in files] == [False, True, True]
    assert await database.read(partial(left_of, call_id=made[0].id)) == {"calls", "call_sip", "webhook_deliveries"}


async def test_the_talk_goes_with_all_that_tells_of_it(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> tuple[Call, Call]:
        owner = keeps(conn, keep_transcripts_days=30).id
        return past_call(conn, owner, OLD - timedelta(milliseconds=1)), past_call(conn, owner, OLD)

    old, young = await database.write(store)
    removed = await Retention(database, tmp_path).run_once(NOW)
    assert removed.transcripts == 1
    left = await database.read(partial(calls.get_by_id, call_id=old.id))
    nothing = {"transcript": [], "timeline": [], "analysis": None, "context_variables": {}, "metadata": {"ticket": 17}}
    assert left == replace(old, **nothing)  # type: ignore[arg-type]
    assert await database.read(partial(left_of, call_id=old.id)) == {"calls"}
    assert await database.read(partial(calls.get_by_id, call_id=young.id)) == young
    assert (await Retention(database, tmp_path).run_once(NOW)).rows == 0


async def test_nothing_of_it_is_left_in_the_files_of_the_database(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> None:
        owner, other = keeps(conn, keep_transcripts_days=1).id, keeps(conn, keep_calls_days=1).id
        for owned_by in (owner, other):
            for _ in range(3):
                past_call(conn, owned_by, OLD)

    await database.write(store)
    assert await asyncio.to_thread(on_disk, tmp_path, SAID)
    await Retention(database, tmp_path).run_once(NOW)
    assert not await asyncio.to_thread(on_disk, tmp_path, SAID)


async def test_what_somebody_read_while_it_was_removed_is_gone_from_the_log_after_the_next_round(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calls.post_call.retention.WAL_RETRY_S", 0.0)
    await database.write(lambda conn: past_call(conn, keeps(conn, keep_transcripts_days=1).id, OLD))
    worker, log = Retention(database, tmp_path), tmp_path / "trunkline.db-wal"
    with closing(sqlite3.connect(database.path, isolation_level=None, check_same_thread=False)) as reader:
        await asyncio.to_thread(lambda: [reader.execute(each).fetchall() for each in ("BEGIN", "SELECT * FROM calls")])
        assert (await worker.run_once(NOW)).transcripts == 1
        assert SAID.encode() in await asyncio.to_thread(log.read_bytes)
        await asyncio.to_thread(reader.execute, "COMMIT")
    assert (await worker.run_once(NOW)).rows == 0
    assert await asyncio.to_thread(log.read_bytes) == b""


async def test_calls_go_whole_with_those_they_were_handed_on_to(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> tuple[Call, Call, Call, Call]:
        owner = keeps(conn, keep_calls_days=29).id
        parent = past_call(conn, owner, OLD)
        waits = past_call(conn, owner, OLD)
        return (
            parent,
            past_call(conn, owner, OLD, parent=parent.id),
            waits,
            past_call(conn, owner, NOW, parent=waits.id),
        )

    made = await database.write(store)
    files = [record(tmp_path, each) for each in made]
    removed = await Retention(database, tmp_path).run_once(NOW)
    assert (removed.calls, removed.files) == (2, 2)
    assert [await database.read(partial(left_of, call_id=each.id)) for each in made[:2]] == [set(), set()]
    assert [file.exists() for file in files] == [False, False, True, True]


async def test_a_call_that_goes_on_is_not_touched(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> Call:
        owner = keeps(conn, keep_calls_days=0, keep_recordings_days=0, keep_transcripts_days=0).id
        return past_call(conn, owner, OLD, ended=False)

    call = await database.write(store)
    assert (await Retention(database, tmp_path).run_once(NOW)).rows == 0
    assert await database.read(partial(calls.get_by_id, call_id=call.id)) == call


async def test_zero_days_are_as_soon_as_the_call_has_settled(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> None:
        past_call(conn, keeps(conn, keep_calls_days=0).id, NOW)

    await database.write(store)
    worker = Retention(database, tmp_path)
    assert (await worker.run_once(NOW + timedelta(seconds=29))).calls == 0
    assert (await worker.run_once(NOW + timedelta(seconds=31))).calls == 1


async def test_what_is_still_to_be_delivered_is_kept_a_week_longer(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> None:
        past_call(conn, keeps(conn, keep_calls_days=1).id, OLD, told=False)
        past_call(conn, keeps(conn, keep_transcripts_days=1).id, OLD, told=False)

    await database.write(store)
    worker = Retention(database, tmp_path)
    assert (await worker.run_once(OLD + 8 * DAY)).rows == 0
    late = await worker.run_once(OLD + 8 * DAY + timedelta(seconds=1))
    assert (late.calls, late.transcripts) == (1, 1)


async def test_a_crash_leaves_no_file_behind_and_no_row_that_promises_one(tmp_path: Path, database: Database) -> None:
    """The row says that there is no recording before the file goes, and that the file is to go until it is gone."""

    def store(conn: sa.Connection) -> Call:
        return past_call(conn, keeps(conn, keep_recordings_days=1).id, OLD)

    call = await database.write(store)
    file = record(tmp_path, call)
    owner = call.organization_id
    await database.write(partial(deletion.delete_recordings, organization_id=owner, before=NOW, limit=9))  # and it dies
    stored = await database.read(partial(calls.get_by_id, call_id=call.id))
    assert stored is not None and not stored.recorded and file.exists()
    assert (await Retention(database, tmp_path).run_once(NOW)).files == 1
    assert not file.exists()
    assert await database.read(partial(deletion.pending_file_removals, limit=9)) == []


async def test_a_file_that_the_disk_does_not_give_up_is_tried_again(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> Call:
        return past_call(conn, keeps(conn, keep_recordings_days=1).id, OLD)

    call = await database.write(store)
    path = recordings.path_of(tmp_path, call.id, call.created_at)
    (path / "in the way").mkdir(parents=True)  # nobody can unlink a folder
    worker = Retention(database, tmp_path)
    assert (await worker.run_once(NOW)).files == 0
    shutil.rmtree(path)
    file = record(tmp_path, call)
    assert (await worker.run_once(NOW)).files == 1
    assert not file.exists()


async def test_a_file_whose_folder_is_not_stored_is_tried_again(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be there again after a power failure."""

    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def store(conn: sa.Connection) -> Call:
        return past_call(conn, keeps(conn, keep_recordings_days=1).id, OLD)

    call = await database.write(store)
    file = record(tmp_path, call)
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", refuse)
        assert (await Retention(database, tmp_path).run_once(NOW)).files == 0
    assert not file.exists()
    assert (await Retention(database, tmp_path).run_once(NOW)).files == 1


async def test_however_calls_go_their_files_go_too(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> Call:
        return past_call(conn, keeps(conn).id, OLD)

    call = await database.write(store)
    file = record(tmp_path, call)
    await database.write(lambda conn: conn.execute(sa.delete(tables.organizations)).close())
    worker = Retention(database, tmp_path)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(10):
        await worker.idle()
    assert not file.exists()
    running.cancel()


async def test_a_thousand_calls_go_in_small_pieces_while_others_write(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> None:
        owner = keeps(conn, keep_calls_days=1, keep_transcripts_days=1).id
        first = past_call(conn, owner, OLD)
        row = dict(conn.execute(sa.select(tables.calls)).mappings().one())
        rows = [{**row, "id": f"{first.id[:-6]}{number:06}"} for number in range(1000)]
        conn.execute(sa.insert(tables.calls), rows)

    await database.write(store)
    worker = Retention(database, tmp_path)
    task, waits = asyncio.create_task(worker.run_once(NOW)), []
    loop = asyncio.get_running_loop()
    while not task.done():
        began = loop.time()
        await database.write(lambda conn: conn.execute(sa.update(tables.organizations).values(max_calls=1)).close())
        waits.append(loop.time() - began)
    assert task.result().calls == 1001
    assert len(waits) >= 5  # they had their turns: this is no matter of milliseconds


@pytest.mark.parametrize(
    ("most", "took_s", "following"),
    [
        (8, TARGET_TRANSACTION_S, 8),
        (8, TARGET_TRANSACTION_S / 100, 16),
        (100, 10 * TARGET_TRANSACTION_S, 10),
        (4, 1.0, 1),
        (MAX_BATCH, 0.0, 400),
    ],
)
def test_pieces_grow_and_shrink_with_the_time_that_they_take(most: int, took_s: float, following: int) -> None:
    assert next_batch_size(most, took_s) == following
