"""Cache of audio loops (background sounds, hold music) at the sample rates of calls, which all calls share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Final

import numpy as np
import soxr

from media.audio_port import Samples
from media.background.files import InvalidSound
from media.background.loop_synthesis import SAMPLE_RATE
from sipcore.audio.pump import Pump

if TYPE_CHECKING:
    from sipcore._native import Background

MAX_CACHE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of loops that are cached for later calls; the least recently used is dropped first. Calls keep the loops that
they play."""
_MARGIN: Final = SAMPLE_RATE // 10
"""Samples around a loop that the resampler gets, because its filter is shorter than that."""
_Key = tuple[str, int]


@dataclass(frozen=True)
class _LoadedLoop:
    background: Background
    size: int


class AudioLoopCache:
    """The loops of one pump, by name and sample rate. For the event loop."""

    def __init__(self, pump: Pump, max_cache_bytes: int = MAX_CACHE_BYTES) -> None:
        self.pump: Final = pump
        self._max_cache_bytes = max_cache_bytes
        self._cached: dict[_Key, _LoadedLoop] = {}
        self._loading: dict[_Key, asyncio.Task[_LoadedLoop]] = {}

    @property
    def size(self) -> int:
        """Bytes of the loops in the cache."""
        return sum(loop.size for loop in self._cached.values())

    async def get(self, name: str, rate: int, read: Callable[[], Samples]) -> Background:
        """The loop of this name at this rate (Hz). `read` returns it at SAMPLE_RATE, on a thread, if it is not cached.
        Raises what `read` raises, and `InvalidSound` for an empty loop."""
        key = (name, rate)
        cached = self._cached.pop(key, None)
        if cached is not None:
            self._cached[key] = cached
            return cached.background
        if key not in self._loading:
            self._loading[key] = asyncio.create_task(self._load(key, read), name="sound loop")
        # Another call may wait for it after this one has ended.
        return (await asyncio.shield(self._loading[key])).background

    async def _load(self, key: _Key, read: Callable[[], Samples]) -> _LoadedLoop:
        try:
            loop = await asyncio.to_thread(self._render, *key, read)
        finally:
            del self._loading[key]
        self._cached[key] = loop
        while self.size > self._max_cache_bytes:
            del self._cached[next(iter(self._cached))]
        return loop

    def _render(self, name: str, rate: int, read: Callable[[], Samples]) -> _LoadedLoop:
        samples = resample_loop(read(), rate)
        if len(samples) == 0:
            raise InvalidSound(f"{name} holds no sound")
        return _LoadedLoop(self.pump.load_background(samples), samples.nbytes)


def resample_loop(loop: Samples, rate: int) -> Samples:
    """Resample a loop from SAMPLE_RATE to another rate without a seam: circularly, and repeated where its length would
    otherwise be no whole number of the new samples."""
    if rate == SAMPLE_RATE or len(loop) == 0:
        return loop
    step = SAMPLE_RATE // gcd(rate, SAMPLE_RATE)
    loop = np.tile(loop, step // gcd(step, len(loop)))
    margin = _MARGIN * rate // SAMPLE_RATE
    length = len(loop) * rate // SAMPLE_RATE
    resampled: Samples = soxr.resample(np.pad(loop, _MARGIN, mode="wrap"), SAMPLE_RATE, rate)
    return resampled[margin : margin + length]
