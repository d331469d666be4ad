"""The queue of calls whose echo filter is to adapt: one after the other, in the order in which their echoes were found,
within a set share of a tick for all together.

A stall of the tick thread is a stall of every call. One after the other they are ready no later than they would be side
by side. Work is counted in frames of a known cost, no clock is read: the same sound always takes the same ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_history import AudioHistory
from media.echo.canceller import EchoCanceller
from media.echo.speex import AdaptiveFilter

FRAME_US: Final = {8000: 45, 16000: 80}
"""What learning from one frame (20 ms) takes at a rate, between other work of a tick, microseconds;"""
CREATE_FILTER_US: Final = 200
"""and what a new filter takes."""


class AdaptationQueue:
    """The lines of a history that wait for their filter or learn. `per_ms` tells the samples per ms of every row."""

    def __init__(self, history: AudioHistory, per_ms: NDArray[np.float64]) -> None:
        self._history = history
        self._per_ms = per_ms
        self._lags: dict[int, float] = {}  # by row, in the order in which they wait
        self._canceller: EchoCanceller | None = None  # of the first of them
        self.spent_us = 0
        """What learning has taken of this tick."""

    def add(self, row: int, lag_ms: float) -> None:
        """A row has an echo of this delay: it waits for a filter."""
        self._lags[row] = lag_ms

    def lag_ms(self, row: int) -> float | None:
        """The delay for which a row waits, if it does."""
        return self._lags.get(row)

    def remove(self, row: int) -> None:
        """A row waits no longer."""
        if row in self._lags:
            if self._canceller is not None and row == next(iter(self._lags)):
                self._canceller.close()
                self._canceller = None
            del self._lags[row]

    @property
    def rows(self) -> Sequence[int]:
        """The rows that wait or learn, in order."""
        return list(self._lags)

    def adapt(self, new: Callable[[int], AdaptiveFilter], most_us: int) -> Iterator[tuple[int, EchoCanceller]]:
        """Go on learning, once a tick, for so many microseconds; yields the rows whose filter is ready. `new` makes one
        for a rate. Raises what the cancellers raise."""
        self.spent_us = 0
        while self._lags and self.spent_us < most_us:
            row, lag_ms = next(iter(self._lags.items()))
            rate = round(self._per_ms[row] * 1000)
            if self._canceller is None:
                self._canceller = EchoCanceller(self._history, row, rate, lag_ms, new(rate))
                self.spent_us += CREATE_FILTER_US
            frames = max((most_us - self.spent_us) // FRAME_US[rate], 1)
            self.spent_us += (frames - self._canceller.adapt(frames)) * FRAME_US[rate]
            if not self._canceller.adapted:
                return
            canceller, self._canceller = self._canceller, None
            del self._lags[row]
            yield row, canceller
