"""Audio history: the last 2.4 s of every call, received and sent, in one array each, so that one gather cuts the frames
and windows of all calls."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples

Rows = NDArray[np.intp]
"""Row numbers, ascending."""

HISTORY_MS: Final = 2400
"""Audio kept per row at 16 kHz, ms (an 8 kHz row uses half of its memory): what a compaction retains, and what one read
may add."""
RETAINED_MS: Final = 800
"""Audio that stays when a row is compacted: the pre-roll (300 ms), the windows that warm the VAD model up, or the sent
audio of which an echo may be (600 ms before the last 128 ms)."""
_MAX_RATE: Final = 16000
_ROW_SAMPLES: Final = HISTORY_MS * _MAX_RATE // 1000


class Cursor(IntEnum):
    """Indices that move through a row's audio; all start after `RETAINED_MS` of silence."""

    END = 0
    """After the newest sample."""
    LEVEL = 1
    """After the last sample whose level was measured."""
    VAD = 2
    """After the last window that voice activity detection has judged."""
    SPEECH_SINK = 3
    """After the last sample that was fed to the sinks."""
    RECORDED = 4
    """After the last sample that was handed to the recording."""
    READY = 5
    """After the last sample that may be measured and judged: in a call with an echo canceller, the last that it has
    processed."""
    ADAPTED = 6
    """After the last sample to which a new echo filter has adapted. Samples that it has not reached may be lost."""
    LIVE = 7
    """After the last sample that a stream has given; it may lie before all that is kept."""


_ANALYSIS: Final = [Cursor.LEVEL, Cursor.VAD, Cursor.SPEECH_SINK, Cursor.READY, Cursor.ADAPTED]


class AudioHistory:
    """`rx_audio` and `tx_audio` are `int16[rows, HISTORY_MS at 16 kHz]`, `cursor` is `int64[rows, len(Cursor)]`. In a
    call with an echo canceller `rx_audio` is its output, and `original` the audio as received."""

    def __init__(self, rows: int) -> None:
        self.rx_audio = np.zeros((rows, _ROW_SAMPLES), np.int16)
        self.tx_audio = np.zeros((rows, _ROW_SAMPLES), np.int16)
        self._original = np.zeros((rows, _ROW_SAMPLES), np.int16)  # untouched memory costs nothing
        self._has_original = [False] * rows
        self.cursor = np.zeros((rows, len(Cursor)), np.int64)
        self._length = np.zeros(rows, np.int64)
        self._retained = np.zeros(rows, np.int64)

    def open(self, row: int, rate: int) -> None:
        """Begin a call at `rate` Hz in a row, with silence."""
        self._length[row] = length = HISTORY_MS * rate // 1000
        self._retained[row] = RETAINED_MS * rate // 1000
        self.rx_audio[row, :length] = 0
        self.tx_audio[row, :length] = 0
        self._has_original[row] = False
        self.cursor[row] = self._retained[row]

    def keep_original(self, row: int) -> None:
        """From now on `rx_audio` may be changed: the received audio is kept apart from it until the call ends."""
        if not self._has_original[row]:
            length = int(self._length[row])
            self._original[row, :length] = self.rx_audio[row, :length]
            self._has_original[row] = True

    def original(self, row: int, start: int, end: int) -> Samples:
        """A view of the audio as received, whatever was changed in `rx_audio`."""
        samples: Samples = (self._original if self._has_original[row] else self.rx_audio)[row, start:end]
        return samples

    def needs_compaction(self, rows: Rows, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """A mask over `rows`: True where `counts` further samples do not fit, so that the row must be compacted
        first."""
        overfull: NDArray[np.bool_] = self.cursor[rows, Cursor.END] + counts > self._length[rows]
        return overfull

    def skip_analysis(self, row: int) -> None:
        """Move the cursors of the analysis behind the newest sample: what has arrived so far is not analysed."""
        self.cursor[row, _ANALYSIS] = self.cursor[row, Cursor.END]

    def keeps_unrecorded(self, row: int) -> bool:
        """True if `compact` keeps all audio that was not handed to the recording yet."""
        end, recorded = int(self.cursor[row, Cursor.END]), int(self.cursor[row, Cursor.RECORDED])
        return end - recorded <= int(self._retained[row])

    def compact(self, row: int) -> None:
        """Move the newest `RETAINED_MS` to the front. All cursors but ADAPTED and LIVE must lie within
        them."""
        end, retained = int(self.cursor[row, Cursor.END]), int(self._retained[row])
        shift = end - retained
        self.rx_audio[row, :retained] = self.rx_audio[row, shift:end].copy()
        self.tx_audio[row, :retained] = self.tx_audio[row, shift:end].copy()
        if self._has_original[row]:
            self._original[row, :retained] = self._original[row, shift:end].copy()
        self.cursor[row] -= shift

    def append(self, rows: Rows, counts: NDArray[np.int64], rx_audio: Samples, tx_audio: Samples) -> None:
        """Append the first `counts` samples of each of `rows` of the two arrays `int16[all rows, capacity]`."""
        ends = self.cursor[rows, Cursor.END]
        for row, end, count in zip(rows.tolist(), ends.tolist(), counts.tolist(), strict=True):
            self.rx_audio[row, end : end + count] = rx_audio[row, :count]
            self.tx_audio[row, end : end + count] = tx_audio[row, :count]
            if self._has_original[row]:
                self._original[row, end : end + count] = rx_audio[row, :count]
        self.cursor[rows, Cursor.END] = ends + counts

    def gather(self, rows: Rows, start: NDArray[np.int64], count: int) -> Samples:
        """`int16[len(rows), count]` of `rx_audio`, from an index of its own in each row."""
        flat = (rows * _ROW_SAMPLES + start)[:, np.newaxis] + np.arange(count)
        samples: Samples = self.rx_audio.reshape(-1)[flat]
        return samples
