"""What holds for every store of recordings: a bucket of a real S3-compatible server, and a folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from storage.recording_store.folder_store import FolderStore
from storage.recording_store.object_store import ObjectStore
from storage.recording_store.s3_store import PART_BYTES, S3RecordingStore
from tests.peers.seaweedfs import S3Server, bucket_at

pytestmark = pytest.mark.asyncio(loop_scope="package")
KEY = "recordings/2026/11/3c3dbd54-0a55-4d2c-8a3f-0d1d4ad2b4a5.wav"
CONTENT = bytes(range(256)) * 4096
"""1 MiB."""


@pytest_asyncio.fixture(params=["s3", "folder"], loop_scope="package")
async def store(request: pytest.FixtureRequest, s3_server: S3Server, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    """An empty store."""
    if request.param == "s3":
        yield S3RecordingStore(bucket_at(s3_server.port, f"of/{uuid4()}"))
        return
    folder = tmp_path / "shared"
    await asyncio.to_thread(folder.mkdir)
    store = FolderStore(folder)
    await store.open()
    yield store


async def local_file(folder: Path, content: bytes) -> Path:
    path = folder / "local.wav"
    await asyncio.to_thread(path.write_bytes, content)
    return path


async def content_of(store: ObjectStore, start: int, end: int) -> bytes | None:
    chunks = await store.read(KEY, start, end)
    return None if chunks is None else b"".join([each async for each in chunks])


async def test_ranges_of_an_object_are_those_of_the_file(store: ObjectStore, tmp_path: Path) -> None:
    await store.put(KEY, await local_file(tmp_path, CONTENT))
    assert await store.size(KEY) == len(CONTENT)
    for start, end in ((0, len(CONTENT)), (0, 1), (257, 70_000), (len(CONTENT) - 1, len(CONTENT)), (5, 5)):
        assert await content_of(store, start, end) == CONTENT[start:end]


async def test_a_file_of_several_parts_is_complete(store: ObjectStore, tmp_path: Path) -> None:
    content = b"".join(number.to_bytes(4, "little") for number in range((2 * PART_BYTES + 1000) // 4))
    await store.put(KEY, await local_file(tmp_path, content))
    assert await store.size(KEY) == len(content)
    assert await content_of(store, PART_BYTES - 10, PART_BYTES + 10) == content[PART_BYTES - 10 : PART_BYTES + 10]
    assert await content_of(store, 0, len(content)) == content


async def test_an_object_is_replaced(store: ObjectStore, tmp_path: Path) -> None:
    await store.put(KEY, await local_file(tmp_path, CONTENT))
    await store.put(KEY, await local_file(tmp_path, b"shorter"))
    assert await content_of(store, 0, 7) == b"shorter"
    assert await store.size(KEY) == 7


async def test_a_missing_object_has_no_size_and_no_content(store: ObjectStore) -> None:
    assert await store.size(KEY) is None
    assert await content_of(store, 0, 10) is None


async def test_a_removed_object_is_gone_and_may_be_removed_again(store: ObjectStore, tmp_path: Path) -> None:
    await store.put(KEY, await local_file(tmp_path, CONTENT))
    await store.remove(KEY)
    assert await store.size(KEY) is None
    await store.remove(KEY)


async def test_a_missing_local_file_is_no_fault_of_the_store(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await store.put(KEY, tmp_path / "absent.wav")
    assert await store.size(KEY) is None


async def test_an_object_can_be_read_while_it_is_removed(store: ObjectStore, tmp_path: Path) -> None:
    await store.put(KEY, await local_file(tmp_path, CONTENT))
    chunks = await store.read(KEY, 0, len(CONTENT))
    assert chunks is not None
    await store.remove(KEY)
    assert b"".join([each async for each in chunks]) == CONTENT
