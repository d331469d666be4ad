"""Where recordings are: on the local disk, in the store, or in neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from config.clock import utc_now
from storage.recording_store.blocking_reader import blocking_reader
from storage.recording_store.object_store import StoreUnavailable
from storage.recording_store.recording_files import DOWNLOADS, CallKey, RecordingFiles, key_of
from storage.recording_store.s3_store import S3RecordingStore
from tests.peers.seaweedfs import Relay, S3Server, bucket_at

pytestmark = pytest.mark.asyncio(loop_scope="package")
CONTENT = bytes(range(256)) * 3000
AT = datetime(2026, 11, 22, 6, tzinfo=UTC)


async def _is_recorded() -> bool:
    return True


@pytest_asyncio.fixture(loop_scope="package")
async def relay(s3_server: S3Server) -> AsyncIterator[Relay]:
    async with Relay(s3_server.port) as relay:
        yield relay


@pytest_asyncio.fixture(loop_scope="package")
async def files(relay: Relay, tmp_path: Path) -> RecordingFiles:
    return RecordingFiles(tmp_path, S3RecordingStore(bucket_at(relay.port, str(uuid4()))))


async def recorded(files: RecordingFiles, content: bytes = CONTENT) -> CallKey:
    """A call whose recording is on the local disk."""
    call = CallKey(str(uuid4()), AT)

    def write() -> None:
        path = files.path_of(call)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    await asyncio.to_thread(write)
    return call


async def stored(files: RecordingFiles) -> CallKey:
    """A call whose recording is in the store."""
    call = await recorded(files)
    assert await files.move_to_store(call, _is_recorded) == len(CONTENT)
    return call


async def read(files: RecordingFiles, call: CallKey) -> bytes | None:
    found = await files.open(call)
    return None if found is None else b"".join([each async for each in await found.read(0, found.size)])


async def test_a_recording_is_read_from_the_disk_as_long_as_it_is_there(files: RecordingFiles, relay: Relay) -> None:
    call = await recorded(files)
    await relay.cut()
    assert await read(files, call) == CONTENT


async def test_one_that_was_opened_on_the_disk_stays_readable_after_it_was_moved(files: RecordingFiles) -> None:
    call = await recorded(files)
    opened = await files.open(call)
    assert opened is not None
    await files.move_to_store(call, _is_recorded)
    assert not await asyncio.to_thread(files.path_of(call).exists)
    assert b"".join([each async for each in await opened.read(10, 300_000)]) == CONTENT[10:300_000]
    assert await read(files, call) == CONTENT


async def test_one_in_neither_place_is_none(files: RecordingFiles) -> None:
    assert await read(files, CallKey(str(uuid4()), AT)) is None


async def test_a_thread_reads_it_as_a_file_from_both_places(files: RecordingFiles) -> None:
    for call in (await recorded(files), await stored(files)):
        opened = await files.open(call)
        assert opened is not None
        reader = blocking_reader(opened)
        assert await asyncio.to_thread(reader.read) == CONTENT


async def test_a_thread_gets_an_error_when_the_store_fails(files: RecordingFiles, relay: Relay) -> None:
    opened = await files.open(await stored(files))
    assert opened is not None
    await relay.cut()
    with pytest.raises(OSError, match="it cannot be connected to"):
        await asyncio.to_thread(blocking_reader(opened).read)


async def test_a_program_gets_a_file_which_is_gone_afterwards(files: RecordingFiles, tmp_path: Path) -> None:
    for call in (await recorded(files), await stored(files)):
        async with files.as_file(call) as path:
            assert path is not None and path != files.path_of(call)
            await files.move_to_store(call, _is_recorded)
            assert await asyncio.to_thread(path.read_bytes) == CONTENT
        assert not await asyncio.to_thread(path.exists)
    async with files.as_file(CallKey(str(uuid4()), AT)) as path:
        assert path is None


async def test_what_a_dead_process_has_downloaded_is_removed_and_is_no_recording(
    files: RecordingFiles, tmp_path: Path
) -> None:
    call = await recorded(files)
    left = tmp_path / "recordings" / DOWNLOADS / "x" / f"{uuid4()}.wav"

    def leave() -> None:
        left.parent.mkdir(parents=True)
        left.write_bytes(CONTENT)

    await asyncio.to_thread(leave)
    assert await asyncio.to_thread(files.local_calls) == [call.id]
    assert not await asyncio.to_thread(left.exists)


async def test_a_file_that_changed_meanwhile_stays_on_the_disk(files: RecordingFiles) -> None:
    call = await recorded(files)

    async def is_recorded() -> bool:
        await asyncio.to_thread(files.path_of(call).write_bytes, CONTENT + b"more")
        return True

    assert await files.move_to_store(call, is_recorded) == 0
    assert await read(files, call) == CONTENT + b"more"
    await files.move_to_store(call, _is_recorded)
    assert not await asyncio.to_thread(files.path_of(call).exists)
    assert await read(files, call) == CONTENT + b"more", "the object was replaced"


async def test_a_call_that_was_deleted_meanwhile_leaves_nothing(files: RecordingFiles) -> None:
    call = await recorded(files)

    async def is_recorded() -> bool:
        assert await files.remove([(call.id, AT)]) == [], "it is not removed while it is moved"
        return False

    assert await files.move_to_store(call, is_recorded) == 0
    assert await read(files, call) is None
    assert await files.remove([(call.id, AT)]) == [call.id]


async def test_removal_counts_only_when_the_object_is_gone(files: RecordingFiles, relay: Relay) -> None:
    calls = [(each.id, AT) for each in (await stored(files), await recorded(files))]
    await relay.cut()
    assert await files.remove(calls) == []
    await relay.restore()
    assert set(await files.remove(calls)) == {each[0] for each in calls}
    assert [await read(files, CallKey(*each)) for each in calls] == [None, None]


async def test_a_standby_server_changes_nothing_in_the_store(files: RecordingFiles, tmp_path: Path) -> None:
    call = await stored(files)
    standby = RecordingFiles(tmp_path, files.store, read_only=True)
    assert await standby.remove([(call.id, AT)]) == []
    assert await read(standby, call) == CONTENT


async def test_sizes_are_those_that_are_known_now(files: RecordingFiles, relay: Relay) -> None:
    local, moved = await recorded(files, b"12345"), await stored(files)
    lost, elsewhere = (str(uuid4()), AT - timedelta(days=3)), (str(uuid4()), utc_now())
    asked = [(local.id, AT), lost, elsewhere, (moved.id, AT)]
    assert await files.sizes(asked) == {local.id: 5, lost[0]: 0, moved.id: len(CONTENT)}
    await relay.cut()
    assert await files.sizes(asked) == {local.id: 5}


async def test_an_object_of_another_size_is_replaced_and_one_of_the_same_size_is_not_sent_again(
    files: RecordingFiles, relay: Relay
) -> None:
    call, store = await recorded(files), files.store
    assert store is not None
    await store.put(key_of(call), await _file(files, b"other"))
    await files.move_to_store(call, _is_recorded)
    assert await store.size(key_of(call)) == len(CONTENT)
    await asyncio.to_thread(files.path_of(call).write_bytes, CONTENT)  # as a killed process has left it
    before = relay.passed_bytes
    assert await files.move_to_store(call, _is_recorded) == len(CONTENT)
    assert relay.passed_bytes - before < len(CONTENT) / 10


async def _file(files: RecordingFiles, content: bytes) -> Path:
    return files.path_of(await recorded(files, content))


async def test_an_outage_is_raised_for_what_is_not_on_the_disk(files: RecordingFiles, relay: Relay) -> None:
    call = await stored(files)
    await relay.cut()
    with pytest.raises(StoreUnavailable):
        await files.open(call)
