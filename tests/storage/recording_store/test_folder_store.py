"""Faults of a shared folder: it is not mounted, fails, or does not answer."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event

import pytest
import pytest_asyncio

from storage.recording_store import folder_store
from storage.recording_store.folder_store import MARKER, FolderStore
from storage.recording_store.object_store import StoreUnavailable

pytestmark = pytest.mark.asyncio(loop_scope="function")
KEY = "recordings/2026/11/a.wav"


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[FolderStore]:
    """A store in `tmp_path/shared`, and a local file `tmp_path/local.wav`."""

    def prepare() -> None:
        (tmp_path / "shared").mkdir()
        (tmp_path / "local.wav").write_bytes(b"sound" * 1000)

    await asyncio.to_thread(prepare)
    store = FolderStore(tmp_path / "shared")
    await store.open()
    yield store


async def test_a_folder_that_is_not_mounted_is_an_outage_and_nothing_is_written_there(
    store: FolderStore, tmp_path: Path
) -> None:
    def unmount() -> None:
        (tmp_path / "shared").rename(tmp_path / "mounted")
        (tmp_path / "shared").mkdir()

    await asyncio.to_thread(unmount)
    for work in (store.put(KEY, tmp_path / "local.wav"), store.size(KEY), store.read(KEY, 0, 1), store.remove(KEY)):
        with pytest.raises(StoreUnavailable) as failure:
            await work
        assert MARKER in failure.value.cause
    assert await asyncio.to_thread(os.listdir, tmp_path / "shared") == []


async def test_a_stale_handle_is_an_outage(store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put(KEY, tmp_path / "local.wav")

    def stale(*_: object) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    chunks = await store.read(KEY, 0, 5000)
    assert chunks is not None
    monkeypatch.setattr(os, "pread", stale)
    with pytest.raises(StoreUnavailable) as failure:
        await anext(chunks)
    assert failure.value.cause == os.strerror(errno.ESTALE)


async def test_a_folder_that_does_not_answer_is_an_outage_within_seconds_and_the_loop_goes_on(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = Event()
    monkeypatch.setattr(folder_store, "REPLY_S", 0.2)
    monkeypatch.setattr(store, "_require_mounted", lambda: released.wait(20) and None)
    began = time.monotonic()
    works = [store.size(KEY) for _ in range(3 * folder_store.THREADS)]
    failures = await asyncio.gather(*works, return_exceptions=True)
    assert time.monotonic() - began < 5
    assert {type(each) for each in failures} == {StoreUnavailable}
    monkeypatch.undo()
    with pytest.raises(StoreUnavailable):  # all threads hang
        await asyncio.wait_for(store.size(KEY), 10)
    released.set()
    async with asyncio.timeout(10):
        assert await store.size(KEY) is None


async def test_a_copy_that_was_given_up_never_gets_its_name(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, released = asyncio.Event(), Event()
    loop, fsync = asyncio.get_running_loop(), os.fsync

    def slow(handle: int) -> None:
        loop.call_soon_threadsafe(began.set)
        released.wait(20)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", slow)
    put = asyncio.create_task(store.put(KEY, tmp_path / "local.wav"))
    await began.wait()
    put.cancel()
    await asyncio.gather(put, return_exceptions=True)
    released.set()
    folder = (tmp_path / "shared" / KEY).parent
    await asyncio.to_thread(_wait_until_empty, folder)
    assert await store.size(KEY) is None


async def test_what_a_killed_process_left_of_a_copy_is_removed_by_the_next_one(
    store: FolderStore, tmp_path: Path
) -> None:
    left = tmp_path / "shared/recordings/2026/11/.a.wav.0123.partial"

    def leave() -> None:
        left.parent.mkdir(parents=True)
        left.write_bytes(b"half")

    await asyncio.to_thread(leave)
    await store.put(KEY, tmp_path / "local.wav")
    assert await asyncio.to_thread(os.listdir, left.parent) == ["a.wav"]


def _wait_until_empty(folder: Path) -> None:
    deadline_s = time.monotonic() + 10
    while os.listdir(folder):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
