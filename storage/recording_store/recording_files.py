"""The recordings of calls, wherever they are. A call is recorded on the local disk. With a store, the recording of an
ended call is moved there; so it is on the disk of its node, then on both, then in the store."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol, TypeVar
from weakref import finalize

import structlog

from config.clock import utc_now
from media.recording import WAV_HEADER_BYTES
from storage.calls import recordings
from storage.recording_store.object_store import ObjectRefused, ObjectStore, StoreUnavailable

REMOVALS_AT_ONCE: Final = 8
CHUNK_BYTES: Final = 256 * 1024
LOST_AFTER: Final = timedelta(days=2)
"""Age of a call whose recording is nowhere: it counts as missing, and no longer as one that another node will store."""
DOWNLOADS: Final = "downloads"
"""Folder beside the recordings with copies for programs that need a file; a start removes what is left in it."""

log = structlog.get_logger()
T = TypeVar("T")


class RecordedCall(Protocol):
    """What names a recording."""

    @property
    def id(self) -> str:
        """The id of the call."""

    @property
    def created_at(self) -> datetime:
        """When the call was created."""


class OpenRecording(Protocol):
    """A recording that stays readable, also while it is moved or removed."""

    @property
    def size(self) -> int:
        """Its size in bytes."""

    async def read(self, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes `start` to `end` (exclusive). Raises `StoreUnavailable`, as the iterator does."""


@dataclass(frozen=True)
class FileState:
    """Size and time of the last change of a local file."""

    size: int
    changed_ns: int


class LocalRecording:
    """A recording on the local disk. Its file is closed when nothing refers to this object any more."""

    def __init__(self, path: Path) -> None:
        """Blocks. Raises `OSError`."""
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        finalize(self, os.close, self._handle)
        self.size: Final = os.fstat(self._handle).st_size

    async def read(self, start: int, end: int) -> AsyncIterator[bytes]:
        """See `OpenRecording`."""
        return self._chunks(start, end)

    async def _chunks(self, start: int, end: int) -> AsyncIterator[bytes]:
        while start < end:
            chunk = await asyncio.to_thread(os.pread, self._handle, min(CHUNK_BYTES, end - start), start)
            if not chunk:
                raise StoreUnavailable("a recording became shorter while it was read")
            start += len(chunk)
            yield chunk


@dataclass(frozen=True)
class StoredRecording:
    """A recording in the store."""

    size: int
    _store: ObjectStore
    _key: str

    async def read(self, start: int, end: int) -> AsyncIterator[bytes]:
        """See `OpenRecording`."""
        chunks = await self._store.read(self._key, start, end)
        if chunks is None:
            raise StoreUnavailable("a recording was removed while it was read")
        return chunks


class RecordingFiles:
    """All reading, moving and removing of recordings. Without a `store` they stay in `data_dir`. `read_only`: nothing
    in the store is changed, because the store is another server's (`standby`)."""

    def __init__(self, data_dir: Path, store: ObjectStore | None = None, *, read_only: bool = False) -> None:
        self._data_dir = data_dir
        self.store: Final = None if store is None else _WatchedStore(store)
        self.read_only: Final = read_only
        self._moving: set[str] = set()
        """The calls whose recordings are being moved to the store."""

    def path_of(self, call: RecordedCall) -> Path:
        """The path on the local disk, whether or not the recording is there."""
        return recordings.path_of(self._data_dir, call.id, call.created_at)

    async def open(self, call: RecordedCall) -> OpenRecording | None:
        """Find a recording: on the local disk, else in the store, where it is before it leaves the disk. None: it is
        in neither; the node that had the call may still have it, or it is lost. Raises `StoreUnavailable`."""
        try:
            return await asyncio.to_thread(LocalRecording, self.path_of(call))
        except FileNotFoundError:
            if self.store is None:
                return None
        size = await self.store.size(key_of(call))
        return None if size is None else StoredRecording(size, self.store, key_of(call))

    @asynccontextmanager
    async def as_file(self, call: RecordedCall) -> AsyncIterator[Path | None]:
        """A file with the recording, for a program that needs one, while the block runs; None if it is in no place.
        Raises `StoreUnavailable`, and `OSError`."""
        if self.store is None:
            path = self.path_of(call)
            yield path if await asyncio.to_thread(path.exists) else None
            return
        folder = await asyncio.to_thread(self._new_folder)
        try:
            copy = folder / f"{call.id}.wav"
            yield copy if await self._link_or_download(call, copy) else None
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def sizes(self, calls: Iterable[tuple[str, datetime]]) -> dict[str, int]:
        """The sizes of the recordings of calls, given by id and creation, by id; 0 for one that is lost. Those that are
        not known now are left out: another node may have them, or the store does not answer."""
        if self.store is None:
            return await asyncio.to_thread(_local_sizes, self._data_dir, list(calls))
        found: dict[str, int] = {}
        for call_id, created_at in calls:
            call = CallKey(call_id, created_at)
            state = await asyncio.to_thread(state_of, self.path_of(call))
            try:
                size = state.size if state is not None else await self.store.size(key_of(call))
            except StoreUnavailable:
                break
            if size is not None or created_at < utc_now() - LOST_AFTER:
                found[call_id] = size or 0
        return found

    async def remove(self, calls: Sequence[tuple[str, datetime]]) -> list[str]:
        """Remove the recordings of deleted calls, given by id and creation, from the local disk and from the store.
        Returns the ids of those that are in neither any more; the others are to be removed later."""
        if self.store is None:
            return await asyncio.to_thread(recordings.remove, self._data_dir, calls)
        if self.read_only:
            return []
        created = {call_id: at for call_id, at in calls if call_id not in self._moving}
        local = await asyncio.to_thread(recordings.remove, self._data_dir, list(created.items()))
        return await self.remove_from_store([(call_id, created[call_id]) for call_id in local])

    async def remove_from_store(self, calls: Sequence[tuple[str, datetime]]) -> list[str]:
        """Remove the recordings of deleted calls, given by id and creation, from the store alone. Returns the ids of
        those that are not in it any more."""
        if self.store is None or self.read_only:
            return []
        keys = [CallKey(call_id, created_at) for call_id, created_at in calls]
        removed: list[str] = []
        for at in range(0, len(keys), REMOVALS_AT_ONCE):
            some = keys[at : at + REMOVALS_AT_ONCE]
            results = await asyncio.gather(*(self.store.remove(key_of(each)) for each in some), return_exceptions=True)
            for each, result in zip(some, results, strict=True):
                if result is None:
                    removed.append(each.id)
                elif not isinstance(result, StoreUnavailable):
                    raise result
            if len(removed) < at + len(some):
                break
        return removed

    async def move_to_store(self, call: RecordedCall, is_recorded: Callable[[], Awaitable[bool]]) -> int:
        """Copy a recording to the store, unless it is there, and remove it from the local disk. Returns its size; 0
        when it is not on the disk, or has changed meanwhile and stays there. `is_recorded` is asked when the recording
        is in the store: if the call was deleted meanwhile, the recording is removed from both. Raises
        `StoreUnavailable`, and `OSError` for the local file."""
        if self.store is None:
            return 0
        path, key = self.path_of(call), key_of(call)
        self._moving.add(call.id)
        try:
            before = await asyncio.to_thread(state_of, path)
            if before is None:
                return 0
            if await self.store.size(key) != before.size:
                await self.store.put(key, path)
                if (stored := await self.store.size(key)) != before.size:
                    raise ObjectRefused(f"{before.size} bytes were sent, {stored} are stored")
            if not await is_recorded():
                await self.store.remove(key)
                await asyncio.to_thread(path.unlink, missing_ok=True)
                return 0
            return before.size if await asyncio.to_thread(_unlink_unchanged, path, before) else 0
        finally:
            self._moving.discard(call.id)

    def local_calls(self) -> list[str]:
        """The ids of the calls with a recording that has audio on the local disk. Removes copies that a dead process
        has left. Blocks."""
        shutil.rmtree(self._data_dir / "recordings" / DOWNLOADS, ignore_errors=True)
        return self.local_ids()

    def local_ids(self) -> list[str]:
        """The ids of the calls with a recording that has audio on the local disk. Blocks."""
        found = (self._data_dir / "recordings").glob("[0-9][0-9][0-9][0-9]/[0-9][0-9]/*.wav")
        return [path.stem for path in found if (state := state_of(path)) and state.size > WAV_HEADER_BYTES]

    def _new_folder(self) -> Path:
        downloads = self._data_dir / "recordings" / DOWNLOADS
        downloads.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=downloads))

    async def _link_or_download(self, call: RecordedCall, copy: Path) -> bool:
        with suppress(FileNotFoundError):
            await asyncio.to_thread(os.link, self.path_of(call), copy)
            return True
        found = await self.open(call)
        if found is None:
            return False
        chunks = await found.read(0, found.size)
        file = await asyncio.to_thread(copy.open, "xb")
        try:
            async for chunk in chunks:
                await asyncio.to_thread(file.write, chunk)
        finally:
            await asyncio.to_thread(file.close)
        return True


@dataclass(frozen=True)
class CallKey:
    """A call by its id and its creation."""

    id: str
    created_at: datetime


def key_of(call: RecordedCall) -> str:
    """The key of a recording in the store: its path in the data directory."""
    return recordings.path_of(Path(), call.id, call.created_at).as_posix()


def state_of(path: Path) -> FileState | None:
    """The state of a local file; None when there is none. Blocks. Raises `OSError`."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return FileState(status.st_size, status.st_mtime_ns)


def _local_sizes(data_dir: Path, calls: Sequence[tuple[str, datetime]]) -> dict[str, int]:
    return {call_id: recordings.size(data_dir, call_id, at) for call_id, at in calls}


def _unlink_unchanged(path: Path, before: FileState) -> bool:
    """Remove a file that is as it was before; returns False when it is not."""
    if state_of(path) != before:
        return False
    path.unlink()
    return True


class _WatchedStore:
    """A store whose outages are logged: one line at the beginning, and one at the end."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._away_since_s: float | None = None

    @property
    def name(self) -> str:
        """See `ObjectStore`."""
        return self._store.name

    @property
    def is_away(self) -> bool:
        """True from a failure to the next success."""
        return self._away_since_s is not None

    async def put(self, key: str, path: Path) -> None:
        """See `ObjectStore`."""
        await self._watched(self._store.put(key, path))

    async def size(self, key: str) -> int | None:
        """See `ObjectStore`."""
        return await self._watched(self._store.size(key))

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes] | None:
        """See `ObjectStore`."""
        chunks = await self._watched(self._store.read(key, start, end))
        return None if chunks is None else self._chunks(chunks)

    async def remove(self, key: str) -> None:
        """See `ObjectStore`."""
        await self._watched(self._store.remove(key))

    async def _chunks(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                yield chunk
        except StoreUnavailable as error:
            self._failed(error)
            raise

    async def _watched(self, work: Awaitable[T]) -> T:
        try:
            result = await work
        except ObjectRefused:
            self._succeeded()
            raise
        except StoreUnavailable as error:
            self._failed(error)
            raise
        self._succeeded()
        return result

    def _failed(self, error: StoreUnavailable) -> None:
        if self._away_since_s is None:
            self._away_since_s = time.monotonic()
            remedy = "recordings wait on the local disk; `trunkline check` tests the store"
            log.error("recordings.store_away", store=self.name, cause=error.cause, remedy=remedy)

    def _succeeded(self) -> None:
        if self._away_since_s is not None:
            log.info("recordings.store_back", store=self.name, away_s=round(time.monotonic() - self._away_since_s, 1))
            self._away_since_s = None
