"""Audio history: the last 1.6 s of every call, received and sent, in one array each, so that all calls are cut into
frames and windows by one gather."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples

Rows = NDArray[np.intp]
"""Row numbers, ascending."""

SPAN_MS: Final = 1600
"""Sound kept per row at 16 kHz, ms (an 8 kHz row uses half of its memory)."""
KEEP_MS: Final = 800
"""Sound that stays when a row is moved to the front: the pre-roll (300 ms), the windows that warm the model, or what an
echo may be one of (600 ms before the last 128 ms)."""
_WIDEST: Final = 16000
_LENGTH: Final = SPAN_MS * _WIDEST // 1000


class Cursor(IntEnum):
    """Indices that move through a row's sound; all start behind `KEEP_MS` of silence."""

    END = 0
    """Behind the newest sample."""
    LEVEL = 1
    """Behind the last sample that was measured."""
    VAD = 2
    """Behind the last window that was judged."""
    SPEECH_SINK = 3
    """Behind the last sample that the sinks were fed."""
    RECORDED = 4
    """Behind the last sample that the recording was given."""
    READY = 5
    """Behind the last sample that may be measured and judged: on a line with an echo, the last that is free of it."""
    ADAPTED = 6
    """Behind the last sample that a new filter has learned from. What it has not reached may be lost."""


class AudioHistory:
    """`rx_audio` and `tx_audio` are `int16[rows, SPAN_MS at 16 kHz]`, `cursor` is `int64[rows, len(Cursor)]`. On a line
    whose echo is taken out, `rx_audio` is what is left, and `original` what came in."""

    def __init__(self, rows: int) -> None:
        self.rx_audio = np.zeros((rows, _LENGTH), np.int16)
        self.tx_audio = np.zeros((rows, _LENGTH), np.int16)
        self._original = np.zeros((rows, _LENGTH), np.int16)  # memory that is never touched costs nothing
        self._keeps_original = [False] * rows
        self.cursor = np.zeros((rows, len(Cursor)), np.int64)
        self._length = np.zeros(rows, np.int64)
        self._keep = np.zeros(rows, np.int64)

    def open(self, row: int, rate: int) -> None:
        """Begin a call at `rate` Hz in a row: it holds silence."""
        self._length[row] = SPAN_MS * rate // 1000
        self._keep[row] = KEEP_MS * rate // 1000
        self.rx_audio[row] = 0
        self.tx_audio[row] = 0
        self._keeps_original[row] = False
        self.cursor[row] = self._keep[row]

    def keep_original(self, row: int) -> None:
        """From now on `rx_audio` may be changed: what comes in is kept apart from it until the call ends."""
        if not self._keeps_original[row]:
            self._original[row] = self.rx_audio[row]
            self._keeps_original[row] = True

    def original(self, row: int, start: int, end: int) -> Samples:
        """A view of what came in, whatever has become of it in `rx_audio`."""
        sound: Samples = (self._original if self._keeps_original[row] else self.rx_audio)[row, start:end]
        return sound

    def lacks_room(self, rows: Rows, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `rows` have no room for so many samples more: they must be moved first."""
        full: NDArray[np.bool_] = self.cursor[rows, Cursor.END] + counts > self._length[rows]
        return full

    def make_room(self, row: int) -> None:
        """Move the newest `KEEP_MS` to the front. Whatever a cursor has not reached must lie within them
        (but for ADAPTED)."""
        end, keep = int(self.cursor[row, Cursor.END]), int(self._keep[row])
        shift = end - keep
        self.rx_audio[row, :keep] = self.rx_audio[row, shift:end].copy()
        self.tx_audio[row, :keep] = self.tx_audio[row, shift:end].copy()
        if self._keeps_original[row]:
            self._original[row, :keep] = self._original[row, shift:end].copy()
        self.cursor[row] -= shift

    def append(self, rows: Rows, counts: NDArray[np.int64], rx_audio: Samples, tx_audio: Samples) -> None:
        """Add the first `counts` samples of each of `rows` of the two arrays `int16[all rows, capacity]`."""
        ends = self.cursor[rows, Cursor.END]
        for row, end, count in zip(rows.tolist(), ends.tolist(), counts.tolist(), strict=True):
            self.rx_audio[row, end : end + count] = rx_audio[row, :count]
            self.tx_audio[row, end : end + count] = tx_audio[row, :count]
            if self._keeps_original[row]:
                self._original[row, end : end + count] = rx_audio[row, :count]
        self.cursor[rows, Cursor.END] = ends + counts

    def gather(self, rows: Rows, start: NDArray[np.int64], count: int) -> Samples:
        """`int16[len(rows), count]` of what was heard, from an index of its own in each row."""
        flat = (rows * _LENGTH + start)[:, np.newaxis] + np.arange(count)
        sound: Samples = self.rx_audio.reshape(-1)[flat]
        return sound
