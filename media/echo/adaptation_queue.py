"""The queue of calls whose echo filter is to adapt: one after the other, in the order in which their echoes were found,
within one budget per tick for all together.

A stall of the tick thread is a stall of every call. Adapted one after the other, the last filter is ready no later than
it would be if all adapted side by side. Work is counted in frames of a known cost and not by a clock: the same audio
always takes the same ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_history import AudioHistory
from media.echo.canceller import EchoCanceller
from media.echo.speex import AdaptiveFilter

FRAME_US: Final = {8000: 45, 16000: 80}
"""Cost of adapting to one frame (20 ms) at a sample rate, among the other work of a tick, microseconds."""
CREATE_FILTER_US: Final = 200
"""Cost of creating a filter, microseconds."""


class AdaptationQueue:
    """Rows of a history whose filter waits or adapts. `per_ms`: the samples per ms of every row."""

    def __init__(self, history: AudioHistory, per_ms: NDArray[np.float64]) -> None:
        self._history = history
        self._per_ms = per_ms
        self._lags: dict[int, float] = {}  # by row, in the order in which they wait
        self._canceller: EchoCanceller | None = None  # of the first of them
        self.spent_us = 0
        """Cost of the adaptation in this tick, microseconds."""

    def add(self, row: int, lag_ms: float) -> None:
        """Enqueue a row with an echo of this delay."""
        self._lags[row] = lag_ms

    def lag_ms(self, row: int) -> float | None:
        """The echo delay of a row in the queue; None for other rows."""
        return self._lags.get(row)

    def remove(self, row: int) -> None:
        """Remove a row, if it is in the queue."""
        if row in self._lags:
            if self._canceller is not None and row == next(iter(self._lags)):
                self._canceller.close()
                self._canceller = None
            del self._lags[row]

    @property
    def rows(self) -> Sequence[int]:
        """The rows in the queue, in order."""
        return list(self._lags)

    def adapt(
        self, create_filter: Callable[[int], AdaptiveFilter], budget_us: int
    ) -> Iterator[tuple[int, EchoCanceller]]:
        """Continue the adaptation within a budget in microseconds, once a tick; yields the rows whose filter is ready.
        `create_filter` makes a filter for a sample rate. Raises the cancellers' errors."""
        self.spent_us = 0
        while self._lags and self.spent_us < budget_us:
            row, lag_ms = next(iter(self._lags.items()))
            rate = round(self._per_ms[row] * 1000)
            if self._canceller is None:
                self._canceller = EchoCanceller(self._history, row, rate, lag_ms, create_filter(rate))
                self.spent_us += CREATE_FILTER_US
            frames = max((budget_us - self.spent_us) // FRAME_US[rate], 1)
            self.spent_us += (frames - self._canceller.adapt(frames)) * FRAME_US[rate]
            if not self._canceller.adapted:
                return
            canceller, self._canceller = self._canceller, None
            del self._lags[row]
            yield row, canceller
