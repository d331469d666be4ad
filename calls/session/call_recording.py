"""The recording of one call: opened with its first audio, and closed when it is on the disk. It begins with the
answer."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog

from config.clock import utc_now
from media.recording import RecordingResult, RecordingWriter
from storage.calls import recordings
from storage.calls.calls import Call

CLOSE_TIMEOUT_S: Final = 5.0
"""Time for a recording to close; afterwards what is on the disk counts."""
MAX_LEAD_S: Final = 60.0
"""Silence at the beginning, whatever a clock that was set says."""

log = structlog.get_logger()


class CallRecording:
    """Opens the recording of a call at `rate` Hz: silence since `answered_at`, then the audio. The audio engine closes
    `recording` when the call is removed."""

    def __init__(
        self, writer: RecordingWriter, data_dir: Path, call: Call, rate: int, answered_at: datetime | None
    ) -> None:
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[RecordingResult] = loop.create_future()
        self._call = call
        self._data_dir = data_dir
        self._closed = closed
        lead_s = 0.0 if answered_at is None else (utc_now() - answered_at).total_seconds()
        self.recording = writer.open(
            recordings.path_of(data_dir, call.id, call.created_at),
            rate=rate,
            call_id=call.id,
            on_closed=lambda result: _set_result_from_thread(loop, closed, result),
            lead_frames=round(min(max(lead_s, 0.0), MAX_LEAD_S) * rate),
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
