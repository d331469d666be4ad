"""RetentionWorker removes due data, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from calls.post_call.retention_worker import MAX_BATCH, TARGET_TRANSACTION_S, RetentionWorker, next_batch_size
from storage import tables
from storage.calls import calls, deletion, recordings, transfers
from storage.calls.calls import Call
from storage.calls.transfers import Transfer
from storage.database.database import Database
from tests import database_template
from tests.calls.post_call.past_calls import (
    SAID,
    organization_with_retention,
    past_call,
    tables_with_data,
    write_recording,
)

NOW = datetime(2026, 11, 22, 6, 0, tzinfo=UTC)
DAY = timedelta(days=1)
OLD = NOW - 30 * DAY


async def test_recordings_are_removed_with_their_files_and_the_calls_stay(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> tuple[Call, Call, Call]:
        owner, other = (
            organization_with_retention(conn, keep_recordings_days=29).id,
            organization_with_retention(conn).id,
        )
        return past_call(conn, owner, OLD), past_call(conn, owner, NOW - 28 * DAY), past_call(conn, other, OLD)

    made = await database.write(store)
    files = [write_recording(tmp_path, each) for each in made]
    removed = await RetentionWorker(database, tmp_path).run_once(NOW)
    assert (removed.recordings, removed.transcripts, removed.calls, removed.files) == (1, 0, 0, 1)
    after = [await database.read(partial(calls.get_by_id, call_id=each.id)) for each in made]
    assert after[0] is not None and after[0].recording_removed_at is not None
    assert after == [
        replace(
            made[0],
            recorded=False,
            recording_removed_at=after[0].recording_removed_at,
            recording_absent_reason="retention",
        ),
        made[1],
        made[2],
    ]
    assert [file.exists() for file in files] == [False, True, True]
    assert await database.read(partial(tables_with_data, call_id=made[0].id)) == {
        "calls",
        "call_sip",
        "transfers",
        "webhook_deliveries",
    }


async def test_transcripts_are_removed_with_all_derived_data(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> tuple[Call, Call]:
        owner = organization_with_retention(conn, keep_transcripts_days=30).id
        return past_call(conn, owner, OLD - timedelta(milliseconds=1)), past_call(conn, owner, OLD)

    old, young = await database.write(store)
    removed = await RetentionWorker(database, tmp_path).run_once(NOW)
    assert removed.transcripts == 1
    left = await database.read(partial(calls.get_by_id, call_id=old.id))
    assert left is not None and left.talk_removed_at is not None
    assert left == replace(
        old,
        transcript=[],
        timeline=[],
        analysis=None,
        context_variables={},
        metadata={"ticket": 17},
        talk_removed_at=left.talk_removed_at,
    )
    assert await database.read(partial(tables_with_data, call_id=old.id)) == {"calls", "transfers"}
    assert [_texts(each) for each in await database.read(partial(transfers.of_call, parent_call_id=old.id))] == [
        (None, None, None)
    ]
    assert [_texts(each) for each in await database.read(partial(transfers.of_call, parent_call_id=young.id))] == [
        (SAID, SAID, SAID)
    ]
    assert await database.read(partial(calls.get_by_id, call_id=young.id)) == young
    assert (await RetentionWorker(database, tmp_path).run_once(NOW)).rows == 0


def _texts(transfer: Transfer) -> tuple[str | None, ...]:
    return transfer.reason, transfer.summary, transfer.decline_reason


async def test_removed_data_is_nowhere_in_the_database(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> None:
        owner, other = (
            organization_with_retention(conn, keep_transcripts_days=1).id,
            organization_with_retention(conn, keep_calls_days=1).id,
        )
        for owned_by in (owner, other):
            for _ in range(3):
                past_call(conn, owned_by, OLD)

    await database.write(store)
    assert await asyncio.to_thread(database_template.contains, database, SAID)
    await RetentionWorker(database, tmp_path).run_once(NOW)
    assert not await asyncio.to_thread(database_template.contains, database, SAID)


@database_template.sqlite_only("the write-ahead log is the server's")
async def test_data_read_during_its_removal_leaves_the_write_ahead_log_in_the_next_run(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calls.post_call.retention_worker.WAL_RETRY_S", 0.0)
    await database.write(
        lambda conn: past_call(conn, organization_with_retention(conn, keep_transcripts_days=1).id, OLD)
    )
    worker, log = RetentionWorker(database, tmp_path), tmp_path / "trunkline.db-wal"
    with closing(sqlite3.connect(database.path, isolation_level=None, check_same_thread=False)) as reader:
        await asyncio.to_thread(lambda: [reader.execute(each).fetchall() for each in ("BEGIN", "SELECT * FROM calls")])
        assert (await worker.run_once(NOW)).transcripts == 1
        assert SAID.encode() in await asyncio.to_thread(log.read_bytes)
        await asyncio.to_thread(reader.execute, "COMMIT")
    assert (await worker.run_once(NOW)).rows == 0
    assert await asyncio.to_thread(log.read_bytes) == b""


async def test_calls_are_removed_together_with_their_child_calls(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> tuple[Call, Call, Call, Call]:
        owner = organization_with_retention(conn, keep_calls_days=29).id
        parent = past_call(conn, owner, OLD)
        waits = past_call(conn, owner, OLD)
        return (
            parent,
            past_call(conn, owner, OLD, parent=parent.id),
            waits,
            past_call(conn, owner, NOW, parent=waits.id),
        )

    made = await database.write(store)
    files = [write_recording(tmp_path, each) for each in made]
    removed = await RetentionWorker(database, tmp_path).run_once(NOW)
    assert (removed.calls, removed.files) == (2, 2)
    assert [await database.read(partial(tables_with_data, call_id=each.id)) for each in made[:2]] == [set(), set()]
    assert [file.exists() for file in files] == [False, False, True, True]


async def test_an_active_call_is_not_removed(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> Call:
        owner = organization_with_retention(conn, keep_calls_days=0, keep_recordings_days=0, keep_transcripts_days=0).id
        return past_call(conn, owner, OLD, ended=False)

    call = await database.write(store)
    assert (await RetentionWorker(database, tmp_path).run_once(NOW)).rows == 0
    assert await database.read(partial(calls.get_by_id, call_id=call.id)) == call


async def test_zero_days_remove_a_call_after_half_a_minute(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> None:
        past_call(conn, organization_with_retention(conn, keep_calls_days=0).id, NOW)

    await database.write(store)
    worker = RetentionWorker(database, tmp_path)
    assert (await worker.run_once(NOW + timedelta(seconds=29))).calls == 0
    assert (await worker.run_once(NOW + timedelta(seconds=31))).calls == 1


async def test_undelivered_webhooks_keep_a_call_a_week_longer(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> None:
        past_call(conn, organization_with_retention(conn, keep_calls_days=1).id, OLD, delivered=False)
        past_call(conn, organization_with_retention(conn, keep_transcripts_days=1).id, OLD, delivered=False)

    await database.write(store)
    worker = RetentionWorker(database, tmp_path)
    assert (await worker.run_once(OLD + 8 * DAY)).rows == 0
    late = await worker.run_once(OLD + 8 * DAY + timedelta(seconds=1))
    assert (late.calls, late.transcripts) == (1, 1)


async def test_a_crash_leaves_no_file_without_a_row_and_no_row_without_a_file(
    tmp_path: Path, database: Database
) -> None:
    """The row says that there is no recording before the file is removed, and names the file until it is removed."""

    def store(conn: sa.Connection) -> Call:
        return past_call(conn, organization_with_retention(conn, keep_recordings_days=1).id, OLD)

    call = await database.write(store)
    file = write_recording(tmp_path, call)
    owner = call.organization_id
    await database.write(partial(deletion.delete_recordings, organization_id=owner, before=NOW, limit=9))  # and it dies
    stored = await database.read(partial(calls.get_by_id, call_id=call.id))
    assert stored is not None and not stored.recorded and file.exists()
    assert (await RetentionWorker(database, tmp_path).run_once(NOW)).files == 1
    assert not file.exists()
    assert await database.read(partial(deletion.pending_file_removals, limit=9)) == []


async def test_a_file_that_cannot_be_removed_is_tried_again(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> Call:
        return past_call(conn, organization_with_retention(conn, keep_recordings_days=1).id, OLD)

    call = await database.write(store)
    path = recordings.path_of(tmp_path, call.id, call.created_at)
    (path / "in the way").mkdir(parents=True)  # a folder cannot be unlinked
    worker = RetentionWorker(database, tmp_path)
    assert (await worker.run_once(NOW)).files == 0
    shutil.rmtree(path)
    file = write_recording(tmp_path, call)
    assert (await worker.run_once(NOW)).files == 1
    assert not file.exists()


async def test_a_file_whose_folder_cannot_be_synced_is_tried_again(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure the file could exist again."""

    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def store(conn: sa.Connection) -> Call:
        return past_call(conn, organization_with_retention(conn, keep_recordings_days=1).id, OLD)

    call = await database.write(store)
    file = write_recording(tmp_path, call)
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", refuse)
        assert (await RetentionWorker(database, tmp_path).run_once(NOW)).files == 0
    assert not file.exists()
    assert (await RetentionWorker(database, tmp_path).run_once(NOW)).files == 1


async def test_files_are_removed_however_calls_are_removed(tmp_path: Path, database: Database) -> None:
    def store(conn: sa.Connection) -> Call:
        return past_call(conn, organization_with_retention(conn).id, OLD)

    call = await database.write(store)
    file = write_recording(tmp_path, call)
    await database.write(lambda conn: conn.execute(sa.delete(tables.organizations)).close())
    worker = RetentionWorker(database, tmp_path)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(10):
        await worker.wait_idle()
    assert not file.exists()
    running.cancel()


async def test_a_thousand_calls_are_removed_in_small_batches_while_others_write(
    tmp_path: Path, database: Database
) -> None:
    def store(conn: sa.Connection) -> None:
        owner = organization_with_retention(conn, keep_calls_days=1, keep_transcripts_days=1).id
        first = past_call(conn, owner, OLD)
        row = dict(conn.execute(sa.select(tables.calls)).mappings().one())
        rows = [{**row, "id": f"{first.id[:-6]}{number:06}"} for number in range(1000)]
        conn.execute(sa.insert(tables.calls), rows)

    await database.write(store)
    worker = RetentionWorker(database, tmp_path)
    task, waits = asyncio.create_task(worker.run_once(NOW)), []
    loop = asyncio.get_running_loop()
    while not task.done():
        began = loop.time()
        await database.write(lambda conn: conn.execute(sa.update(tables.organizations).values(max_calls=1)).close())
        waits.append(loop.time() - began)
    assert task.result().calls == 1001
    assert len(waits) >= 5  # other writers ran in between


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
def test_the_batch_size_follows_the_duration_of_batches(most: int, took_s: float, following: int) -> None:
    assert next_batch_size(most, took_s) == following
