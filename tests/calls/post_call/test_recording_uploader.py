"""RecordingUploader: what it moves, when it tries again; and retention with a store of recordings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
import sqlalchemy as sa

from calls.post_call import recording_uploader
from calls.post_call.recording_uploader import MAX_BACKOFF_S, RecordingUploader, backoff_s
from calls.post_call.retention_worker import RetentionWorker
from config.clock import utc_now
from storage import tables
from storage.calls import calls, deletion
from storage.calls.calls import Call
from storage.database.database import Database
from storage.recording_store.folder_store import FolderStore
from storage.recording_store.recording_files import RecordingFiles, key_of
from tests.calls.post_call.past_calls import SOUND, organization_with_retention, past_call, write_recording
from tests.trunkline.small_disk import filled, tiny_disk

DAY = timedelta(days=1)


@pytest_asyncio.fixture
async def files(tmp_path: Path) -> RecordingFiles:
    """Recordings with the store `tmp_path/shared`."""
    await asyncio.to_thread((tmp_path / "shared").mkdir)
    store = FolderStore(tmp_path / "shared")
    await store.open()
    return RecordingFiles(tmp_path, store)


async def recorded_call(database: Database, folder: Path, *, ended: bool = True) -> Call:
    """A call of 40 days ago, and its file on the local disk."""

    def store(conn: sa.Connection) -> Call:
        owner = organization_with_retention(conn, keep_recordings_days=30).id
        return past_call(conn, owner, utc_now() - 40 * DAY, ended=ended)

    call = await database.write(store)
    await asyncio.to_thread(write_recording, folder, call)
    return call


@asynccontextmanager
async def running(uploader: RecordingUploader) -> AsyncIterator[None]:
    task = asyncio.create_task(uploader.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_start_moves_what_ended_calls_left_and_nothing_else(
    database: Database, files: RecordingFiles, tmp_path: Path
) -> None:
    ended, live = await recorded_call(database, tmp_path), await recorded_call(database, tmp_path, ended=False)
    unknown = files.path_of(ended).with_name(f"{uuid4()}.wav")
    await asyncio.to_thread(unknown.write_bytes, b"of nobody")
    uploader = RecordingUploader(database, files)
    async with running(uploader):
        await asyncio.wait_for(uploader.wait_idle(), 10)
        assert not await asyncio.to_thread(files.path_of(ended).exists)
        assert await asyncio.to_thread(files.path_of(live).exists), "it may still be written to"
        assert await asyncio.to_thread(unknown.exists), "files without a row are kept"
        assert files.store is not None and await files.store.size(key_of(live)) is None
        later = await recorded_call(database, tmp_path)
        uploader.add(later)
        await asyncio.wait_for(uploader.wait_idle(), 10)
    assert not await asyncio.to_thread(files.path_of(later).exists)


async def test_the_recording_of_a_call_that_another_node_closed_is_found_by_the_node_that_has_it(
    database: Database, files: RecordingFiles, tmp_path: Path
) -> None:
    closed, expired, other = [await recorded_call(database, tmp_path) for _ in range(3)]
    table = tables.calls

    def change(conn: sa.Connection) -> None:
        no_recording, by_node = {"recorded": False}, {"ended_reason": "server_restart"}
        removed = {"recording_removed_at": utc_now(), "recording_absent_reason": "retention"}
        for call, values in ((closed, by_node), (expired, by_node | removed), (other, {})):
            conn.execute(sa.update(table).where(table.c.id == call.id).values(**no_recording, **values))
        conn.execute(sa.delete(tables.recording_removals))

    await database.write(change)
    uploader = RecordingUploader(database, files)
    async with running(uploader):
        await asyncio.wait_for(uploader.wait_idle(), 10)
    assert [await asyncio.to_thread(files.path_of(each).exists) for each in (closed, expired, other)] == [
        False,
        True,
        True,
    ]
    stored = await database.read(partial(calls.get_by_id, call_id=closed.id))
    assert stored is not None and stored.recorded


async def test_a_file_that_cannot_be_read_holds_up_no_other(
    database: Database, files: RecordingFiles, tmp_path: Path
) -> None:
    broken, good = await recorded_call(database, tmp_path), await recorded_call(database, tmp_path)

    def make_unreadable() -> None:
        os.unlink(files.path_of(broken))
        files.path_of(broken).mkdir()

    await asyncio.to_thread(make_unreadable)
    uploader = RecordingUploader(database, files)
    async with running(uploader):
        await asyncio.wait_for(uploader.wait_idle(), 10)
    assert not await asyncio.to_thread(files.path_of(good).exists)
    [_, uploads] = uploader.collect()
    counts = {each.labels["outcome"]: each.value for each in uploads.samples}
    assert counts == {"stored": 1, "failed": 0, "refused": 1}


async def test_a_full_local_disk_does_not_prevent_the_move_that_frees_it(
    database: Database, files: RecordingFiles, tmp_path: Path
) -> None:
    with tiny_disk(tmp_path / "recordings", "1m"):
        call = await recorded_call(database, tmp_path)
        uploader = RecordingUploader(database, files)
        with filled(tmp_path / "recordings"):
            async with running(uploader):
                await asyncio.wait_for(uploader.wait_idle(), 10)
            assert not await asyncio.to_thread(files.path_of(call).exists)
        assert files.store is not None and await files.store.size(key_of(call)) == len(SOUND)


async def test_the_waits_during_an_outage_grow_to_a_minute_and_differ() -> None:
    for failures, longest in ((1, 1.0), (2, 2.0), (6, 32.0), (7, MAX_BACKOFF_S), (5000, MAX_BACKOFF_S)):
        waits = [backoff_s(failures) for _ in range(50)]
        assert longest / 2 <= min(waits) < max(waits) <= longest


async def test_an_outage_is_tried_with_one_recording_until_it_is_over(
    database: Database, files: RecordingFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_uploader, "MAX_BACKOFF_S", 0.05)
    made = [await recorded_call(database, tmp_path) for _ in range(5)]
    await asyncio.to_thread(os.rename, tmp_path / "shared", tmp_path / "gone")
    uploader = RecordingUploader(database, files)
    async with running(uploader):
        await asyncio.sleep(0.4)
        assert next(iter(uploader.collect())).samples[0].value == len(made)
        await asyncio.to_thread(os.rename, tmp_path / "gone", tmp_path / "shared")
        await asyncio.wait_for(uploader.wait_idle(), 10)
    assert not any([await asyncio.to_thread(files.path_of(each).exists) for each in made])


async def test_retention_removes_the_object_once_the_store_is_back(
    database: Database, files: RecordingFiles, tmp_path: Path
) -> None:
    call = await recorded_call(database, tmp_path)
    uploader, worker = RecordingUploader(database, files), RetentionWorker(database, tmp_path, files)
    async with running(uploader):
        await asyncio.wait_for(uploader.wait_idle(), 10)
    moved = tmp_path / "shared" / key_of(call)
    assert await asyncio.to_thread(moved.exists)
    await asyncio.to_thread(os.rename, tmp_path / "shared", tmp_path / "gone")
    removed = await worker.run_once(utc_now())
    assert (removed.recordings, removed.files) == (1, 0)
    waiting = partial(deletion.pending_file_removals, limit=9)
    assert [each[0] for each in await database.read(waiting)] == [call.id]
    await asyncio.to_thread(os.rename, tmp_path / "gone", tmp_path / "shared")
    assert (await worker.run_once(utc_now())).files == 1
    assert not await asyncio.to_thread(moved.exists)
    assert await database.read(waiting) == []
