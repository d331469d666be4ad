"""The recording of one call: opened with its first audio, and closed when it is on the disk. It begins with the
answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from media.recording import RecordingResult, RecordingWriter
from storage.calls import recordings
from storage.calls.calls import Call

CLOSE_TIMEOUT_S: Final = 5.0
"""Time for a recording to close; afterwards what is on the disk counts."""

log = structlog.get_logger()


class CallRecording:
    """Opens the recording of a call at `rate` Hz: silence since `zero_ms`, the answer on the engine's clock, then the
    audio. The audio engine closes `recording` when the call is removed."""

    def __init__(self, writer: RecordingWriter, data_dir: Path, call: Call, rate: int, zero_ms: float) -> None:
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[RecordingResult] = loop.create_future()
        self._call = call
        self._data_dir = data_dir
        self._closed = closed
        self.recording = writer.open(
            recordings.path_of(data_dir, call.id, call.created_at),
            rate=rate,
            call_id=call.id,
            on_closed=lambda result: _set_result_from_thread(loop, closed, result),
            zero_ms=zero_ms,
        )

    async def wait_closed(self) -> bool:
        """Wait until the engine has released the call and its recording is on the disk. Returns True if it holds
        audio."""
        await asyncio.wait((self._closed,), timeout=CLOSE_TIMEOUT_S)
        if self._closed.done():
            return self._closed.result().frames > 0
        log.error(
            "recording.not_closed",
            call_id=self._call.id,
            path=str(self.recording.path),
            waited_s=CLOSE_TIMEOUT_S,
        )
        self.recording.close()
        return await asyncio.to_thread(recordings.last_written, self._data_dir, self._call) is not None


def _set_result_from_thread(
    loop: asyncio.AbstractEventLoop, closed: asyncio.Future[RecordingResult], result: RecordingResult
) -> None:
    """Called on the writer's thread. Does nothing if the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(closed.set_result, result)
