"""Long work on the event loop: done in slices, and not all the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SLICE_S: Final = 0.003
"""After so much time others have their turn."""
REST_FACTOR: Final = 4.0
"""Work begins again after so many times what it took last: it has a fifth of all time at most."""
MAX_REST_S: Final = 30.0
"""But it rests no longer than this."""


class TimeSlice:
    """`pause` gives the event loop back once a slice has passed."""

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._since_s = time.perf_counter()

    async def checkpoint(self) -> None:
        """Call it after each small step of the work."""
        if time.perf_counter() - self._since_s >= self._slice_s:
            await asyncio.sleep(0)
            self._since_s = time.perf_counter()


class DutyCycle:
    """Keeps work that anybody can bring about from being done all the time: the first after a quiet time begins at
    once."""

    def __init__(self) -> None:
        self._next_s = 0.0

    @property
    def rest_s(self) -> float:
        """How long until the work may begin."""
        return max(0.0, self._next_s - time.perf_counter())

    async def wait(self) -> None:
        """Wait until the work may begin."""
        if rest_s := self.rest_s:
            await asyncio.sleep(rest_s)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """The work is done within the block."""
        begun_s = time.perf_counter()
        try:
            yield
        finally:
            now_s = time.perf_counter()
            self._next_s = now_s + min((now_s - begun_s) * REST_FACTOR, MAX_REST_S)
