"""Reading of a recording on a thread, as a file, wherever the recording is."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, Final, cast

from storage.recording_store.object_store import StoreUnavailable
from storage.recording_store.recording_files import OpenRecording

TIMEOUT_S: Final = 30.0
"""Longest wait of a thread for the next bytes; the store fails before."""
BUFFER_BYTES: Final = 256 * 1024


def blocking_reader(recording: OpenRecording) -> BinaryIO:
    """Returns the recording as a file that is read from its beginning, on any thread but the event loop's. Its `read`
    raises `OSError` when the store fails. To be called on the event loop."""
    raw = _RecordingReader(recording, asyncio.get_running_loop())
    return cast(BinaryIO, io.BufferedReader(raw, BUFFER_BYTES))


class _RecordingReader(io.RawIOBase):
    """The bytes of a recording, fetched by the event loop as they are read."""

    def __init__(self, recording: OpenRecording, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._recording = recording
        self._loop = loop
        self._chunks: AsyncIterator[bytes] | None = None
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Returns True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """See `io.RawIOBase`."""
        if not self._rest:
            work = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
            try:
                self._rest = memoryview(work.result(TIMEOUT_S))
            except StoreUnavailable as error:
                raise OSError(error.cause) from error
            except TimeoutError as error:
                work.cancel()
                raise OSError("the store does not answer") from error
        count = min(len(self._rest), len(buffer))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    async def _next(self) -> bytes:
        if self._chunks is None:
            self._chunks = await self._recording.read(0, self._recording.size)
        return await anext(self._chunks, b"")
