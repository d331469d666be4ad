"""Recordings in a folder that nodes share, such as one of NFS. Its server may be gone at any moment: then a system call
fails with EIO or ESTALE, or does not return."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final, TypeVar

from storage.recording_store.object_store import StoreUnavailable
from storage.recording_store.timed_threads import TimedThreads

REPLY_S: Final = 4.0
"""Time for the folder to answer."""
PUT_S: Final = 60.0
PUT_BYTES_PER_S: Final = 256 * 1024
"""A copy may take the first of these, and longer for a large file: its size by this rate."""
THREADS: Final = 16
CHUNK_BYTES: Final = 512 * 1024
MARKER: Final = ".trunkline-recordings"
"""An empty file in the folder. Without it another folder is mounted there, or none."""
PARTIAL: Final = ".partial"

T = TypeVar("T")


class FolderStore:
    """An `ObjectStore` in a folder. A file gets its name when it is complete and on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = TimedThreads("recordings folder", THREADS)

    @property
    def name(self) -> str:
        """See `ObjectStore`."""
        return str(self._folder)

    async def open(self) -> None:
        """Mark the folder as the one of recordings, if it is there and not marked yet."""
        await self._run(self._mark, REPLY_S)

    async def put(self, key: str, path: Path) -> None:
        """See `ObjectStore`."""
        size = await asyncio.to_thread(lambda: path.stat().st_size)
        abandoned = Event()
        try:
            copy = partial(self._copy, path, self._folder / key, abandoned)
            local_error = await self._run(copy, PUT_S + size / PUT_BYTES_PER_S)
        except BaseException:
            abandoned.set()
            raise
        if local_error is not None:
            raise local_error

    async def size(self, key: str) -> int | None:
        """See `ObjectStore`."""
        return await self._run(partial(self._size, self._folder / key), REPLY_S)

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes] | None:
        """See `ObjectStore`."""
        handle = await self._run(partial(self._open, self._folder / key), REPLY_S, _close)
        return None if handle is None else self._chunks(handle, start, end)

    async def remove(self, key: str) -> None:
        """See `ObjectStore`."""
        await self._run(partial(self._remove, self._folder / key), REPLY_S)

    async def _chunks(self, handle: int, start: int, end: int) -> AsyncIterator[bytes]:
        in_use = False
        try:
            while start < end:
                in_use = True
                chunk = await self._run(partial(os.pread, handle, min(CHUNK_BYTES, end - start), start), REPLY_S)
                in_use = False
                if not chunk:
                    raise StoreUnavailable("a file became shorter while it was read")
                start += len(chunk)
                yield chunk
        finally:
            if not in_use:  # else a thread hangs in it
                _close(handle)

    async def _run(
        self, work: Callable[[], T], timeout_s: float, on_late_result: Callable[[T], None] = lambda _: None
    ) -> T:
        try:
            return await self._threads.run(work, timeout_s, on_late_result)
        except TimeoutError:
            raise StoreUnavailable(f"the folder does not answer within {timeout_s:.0f} s") from None
        except OSError as error:
            raise StoreUnavailable(error.strerror or str(error)) from None

    def _mark(self) -> None:
        if not self._folder.is_dir():
            raise OSError("the folder does not exist")
        (self._folder / MARKER).touch(mode=0o600)

    def _require_mounted(self) -> None:
        """Raises `OSError` when the folder is not the one that was marked."""
        if not (self._folder / MARKER).exists():
            raise OSError(f"the folder has no file {MARKER}, which a start of the server makes: it is not mounted")

    def _copy(self, source: Path, target: Path, abandoned: Event) -> OSError | None:
        """Copy a file. Returns the error of reading `source`; raises those of the folder."""
        self._require_mounted()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.*{PARTIAL}"):  # by a process that was killed
            left.unlink(missing_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PARTIAL}")
        try:
            local_error = _write_copy(source, temporary, abandoned)
            if local_error is None and not abandoned.is_set():
                temporary.rename(target)
                _fsync_folder(target.parent)
            return local_error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _size(self, path: Path) -> int | None:
        self._require_mounted()
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def _open(self, path: Path) -> int | None:
        self._require_mounted()
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def _remove(self, path: Path) -> None:
        self._require_mounted()
        try:
            path.unlink()
        except FileNotFoundError:
            return
        _fsync_folder(path.parent)


def _write_copy(source: Path, target: Path, abandoned: Event) -> OSError | None:
    try:
        source_handle = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return error
    try:
        with target.open("xb", buffering=0) as file:
            while not abandoned.is_set():
                try:
                    chunk = os.read(source_handle, CHUNK_BYTES)
                except OSError as error:
                    return error
                if not chunk:
                    break
                rest = memoryview(chunk)
                while rest:
                    rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
    finally:
        os.close(source_handle)
    return None


def _fsync_folder(folder: Path) -> None:
    """Makes a change of a name survive a power failure, where the file system can do that."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _close(handle: int | None) -> None:
    if handle is not None:
        with suppress(OSError):
            os.close(handle)
