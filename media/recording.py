"""Stereo recordings: caller left, agent right, sample-aligned 16-bit WAV. One thread writes those of all calls.

The tick thread only hands over copies, about twice a second per call. After each append the samples are written first,
then the sizes in the header: if the process is killed, the file is a valid WAV up to its last append. Audio that does
not fit on a full disk becomes silence once there is space again."""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO, Final

import numpy as np
import structlog

from media.audio_port import Samples

WAV_HEADER_BYTES: Final = 44
CHANNELS: Final = 2
_FRAME_BYTES: Final = 2 * CHANNELS
RETRY_S: Final = 2.0
"""Interval of attempts to write after the disk was full."""
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """The result of a recording. `frames`, each a sample of both sides, are on disk; `error` is None if none is
    missing."""

    path: Path
    frames: int
    rate: int
    error: str | None

    @property
    def complete(self) -> bool:
        """True if no frame is missing."""
        return self.error is None


def wav_header(rate: int, frames: int) -> bytes:
    """The 44 bytes before 16-bit stereo PCM (RIFF/WAVE, format tag 1); sizes are capped to 32 bits."""
    size = min(frames * _FRAME_BYTES, 0xFFFFFFFF - WAV_HEADER_BYTES)
    riff = struct.pack("<4sI4s", b"RIFF", size + WAV_HEADER_BYTES - 8, b"WAVE")
    fmt_chunk = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, CHANNELS, rate, rate * _FRAME_BYTES, _FRAME_BYTES, 16)
    return riff + fmt_chunk + struct.pack("<4sI", b"data", size)


class Recording:
    """One call's recording. `append` and `close` return at once; `on_closed` is called from the writer thread."""

    def __init__(
        self,
        path: Path,
        rate: int,
        call_id: str,
        on_closed: Callable[[RecordingResult], None],
        zero_ms: float | None = None,
    ) -> None:
        self.path = path
        self.rate = rate
        self.call_id = call_id
        self._on_closed = on_closed
        self._queue: SimpleQueue[_Job] | None = None
        self._file: BinaryIO | None = None
        self._frames = 0
        self._missing = 0
        """Frames after those in the file that the full disk did not take."""
        self._error: str | None = None
        self._retry_at_s = 0.0
        self._closed = False
        self._zero_ms = zero_ms
        self._silence = 0  # frames that come before the next append

    def begin(self, at_ms: float) -> None:
        """The audio begins at `at_ms`: silence since the recording's time 0 comes before it."""
        if self._zero_ms is not None:
            self.add_silence(max(round((at_ms - self._zero_ms) * self.rate / 1000), 0))

    def append(self, rx_audio: Samples, tx_audio: Samples) -> None:
        """Queue the next mono int16 samples of both sides, equally many; the recording owns the arrays from now on."""
        if self._queue is not None and not self._closed:
            silence, self._silence = self._silence, 0
            self._queue.put((self, silence, rx_audio, tx_audio))

    def add_silence(self, frames: int) -> None:
        """Leave out frames that have no audio. If more audio follows, they are silent."""
        self._silence += frames

    def close(self) -> None:
        """End the recording. Idempotent."""
        if self._queue is not None and not self._closed:
            self._closed = True
            self._queue.put((self, 0, None, None))

    def _attach(self, queue: SimpleQueue[_Job]) -> None:
        self._queue = queue
        queue.put((self, 0, _EMPTY, _EMPTY))

    def _write(self, silence: int, rx_audio: Samples, tx_audio: Samples) -> None:
        """Writer thread: one append, after so many silent frames. The first error ends the recording, unless it was a
        full disk with space later; the call continues."""
        if self._error is not None and time.monotonic() < self._retry_at_s:
            self._missing += silence + len(rx_audio)
            return
        try:
            self._write_block(silence, rx_audio, tx_audio)
        except OSError as error:
            self._missing += silence + len(rx_audio)
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        self._retry_at_s = time.monotonic() + RETRY_S if full else float("inf")
        if self._error is None:
            self._error = error.strerror or str(error)
            _log.error("recording.broken", call_id=self.call_id, path=str(self.path), error=self._error)

    def _write_block(self, silence: int, rx_audio: Samples, tx_audio: Samples) -> None:
        if self._file is None:
            _make_private(self.path.parent)
            self.path.touch(mode=0o600, exist_ok=self._error is not None)
            self._file = self.path.open("r+b", buffering=0)
            _write_all(self._file, wav_header(self.rate, 0), 0)
        if len(rx_audio) == 0:
            return
        first = self._frames + self._missing + silence  # the frames skipped before it read as zeros
        stereo = np.empty((len(rx_audio), CHANNELS), "<i2")
        stereo[:, 0] = rx_audio
        stereo[:, 1] = tx_audio
        if self._missing:  # half of an append may have been written
            self._file.truncate(WAV_HEADER_BYTES + self._frames * _FRAME_BYTES)
        _write_all(self._file, stereo.data.cast("B"), WAV_HEADER_BYTES + first * _FRAME_BYTES)
        _write_all(self._file, wav_header(self.rate, first + len(rx_audio)), 0)
        if self._missing:
            lost_s = round(self._missing / self.rate, 1)
            _log.warning("recording.goes_on", call_id=self.call_id, path=str(self.path), lost_s=lost_s)
        self._frames, self._missing = first + len(rx_audio), 0

    def _finish(self) -> None:
        """Writer thread: close the file and call `on_closed`."""
        if self._file is not None:
            try:
                self._file.truncate(WAV_HEADER_BYTES + self._frames * _FRAME_BYTES)
                self._file.close()
            except OSError as error:
                self._fail(error)
        try:
            self._on_closed(RecordingResult(self.path, self._frames, self.rate, self._error))
        except Exception:  # noqa: BLE001 - the writer serves all calls, one owner's error must not end it
            _log.exception("recording.owner_failed", call_id=self.call_id)


_Job = tuple[Recording, int, Samples | None, Samples | None]
_EMPTY: Final = np.zeros(0, np.int16)


def _make_private(folder: Path) -> None:
    """Create the folder and its missing parents, accessible to the server's user alone."""
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)


def _write_all(file: BinaryIO, data: bytes | memoryview, at: int) -> None:
    """Write everything from offset `at` on: the system may take less than requested when the disk fills up."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file.fileno(), rest, at)
        rest, at = rest[written:], at + written


class RecordingWriter:
    """The writer thread. Recordings opened with it are closed by their owners, then `close` ends the thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="recording-writer", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def open(
        self,
        path: Path,
        *,
        rate: int,
        call_id: str,
        on_closed: Callable[[RecordingResult], None] = lambda _: None,
        zero_ms: float | None = None,
    ) -> Recording:
        """Begin a recording in a new file at `path`; missing folders are created, and only the server's user can read
        any of it. A file error shows in the log and in `RecordingResult.error`, never as an exception. `on_closed` is
        called once, from the writer thread. `zero_ms`: the time 0 of the recording on the engine's clock; None: its
        first audio."""
        recording = Recording(path, rate, call_id, on_closed, zero_ms)
        recording._attach(self._queue)  # type: ignore[arg-type]
        return recording

    def close(self) -> None:
        """Write all queued audio, then end the thread. Idempotent."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            recording, silence, rx_audio, tx_audio = job
            if rx_audio is None or tx_audio is None:
                recording._finish()
            else:
                recording._write(silence, rx_audio, tx_audio)
