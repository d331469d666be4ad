"""Audio that the port has dropped because a tick came too late, as the gaps in the positions of what is read show."""

from __future__ import annotations

from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from media.audio_history import Rows
from media.audio_port import INFO_POSITION

_MS_PER_S: Final = 1000.0
_log = structlog.get_logger()


class LostAudio:
    """`seconds`: audio lost so far, of all calls. One line of the log tells of all that a late tick has lost."""

    def __init__(self, rows: int) -> None:
        self.seconds = 0.0
        self._next: NDArray[np.int64] = np.zeros(rows, np.int64)

    def begin(self, row: int, info: NDArray[np.int64], count: int) -> None:
        """Begin a call whose row was read: `count` samples, which it does not hear."""
        self._next[row] = info[row, INFO_POSITION] + count

    def follow(
        self, rows: Rows, info: NDArray[np.int64], counts: NDArray[np.int64], per_ms: NDArray[np.float64]
    ) -> dict[int, int]:
        """Compare what was read of `rows` (`counts` samples of each) with what was read before. `info` and `per_ms`
        (samples per ms) have all rows. Returns the samples that each row has lost, of the rows that have."""
        positions = info[rows, INFO_POSITION]
        gaps = positions - self._next[rows]
        self._next[rows] = positions + counts
        if not gaps.any():
            return {}
        lost = np.maximum(gaps, 0)
        lost_ms = lost / per_ms[rows]
        self.seconds += float(lost_ms.sum()) / _MS_PER_S
        _log.warning("media.audio_lost", calls=int((lost > 0).sum()), longest_ms=round(float(lost_ms.max())))
        return {row: samples for row, samples in zip(rows.tolist(), lost.tolist(), strict=True) if samples}
