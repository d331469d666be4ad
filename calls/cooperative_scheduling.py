"""Cooperative scheduling of long work on the event loop: a time slice after which it yields, and a duty cycle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SLICE_S: Final = 0.003
"""Time after which work on the event loop yields."""
REST_FACTOR: Final = 4.0
"""Ratio of the rest to the run before it: the work takes at most a fifth of the time."""
MAX_REST_S: Final = 30.0


class TimeSlice:
    """Yields to the event loop whenever a slice of time has passed."""

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._since_s = time.perf_counter()

    async def checkpoint(self) -> None:
        """Yield if the slice is over. Call it after each small step of the work."""
        if time.perf_counter() - self._since_s >= self._slice_s:
            await asyncio.sleep(0)
            self._since_s = time.perf_counter()


class DutyCycle:
    """Limits the share of time of work that clients can trigger: each run is followed by a rest. The first run after a
    quiet time begins at once."""

    def __init__(self) -> None:
        self._next_s = 0.0

    @property
    def rest_s(self) -> float:
        """Seconds until the next run may begin."""
        return max(0.0, self._next_s - time.perf_counter())

    async def wait(self) -> None:
        """Wait until the next run may begin."""
        if rest_s := self.rest_s:
            await asyncio.sleep(rest_s)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Measures the run, which is the block."""
        begun_s = time.perf_counter()
        try:
            yield
        finally:
            now_s = time.perf_counter()
            self._next_s = now_s + min((now_s - begun_s) * REST_FACTOR, MAX_REST_S)
