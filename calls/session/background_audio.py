"""Background sounds of calls: loops at the calls' sample rates, rendered once for all calls that play them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import soxr

from media.audio_port import Samples
from media.background.files import InvalidSound, read_wav
from media.background.loop_synthesis import SAMPLE_RATE
from sipcore.audio.pump import Pump
from storage.background_sounds.sounds import path_of

if TYPE_CHECKING:
    from sipcore._native import Background

DUCKED_VOLUME: Final = 10 ** (-10 / 20)
"""The factor of a sound's volume under the agent's speech: 10 dB less sounds half as loud, so the sound stays present
and recedes. Speech is about 22 dB under full scale and a preset 26, so even at volume 1 there are 14 dB between them;
more than 15 add nothing to the intelligibility of speech (IEC 60268-16)."""
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


class BackgroundSounds:
    """The background sounds of all calls on one pump. For the event loop."""

    def __init__(self, pump: Pump, data_dir: Path, max_cache_bytes: int = MAX_CACHE_BYTES) -> None:
        self._pump = pump
        self._data_dir = data_dir
        self._max_cache_bytes = max_cache_bytes
        self._cached: dict[_Key, _LoadedLoop] = {}
        self._loading: dict[_Key, asyncio.Task[_LoadedLoop]] = {}

    @property
    def size(self) -> int:
        """Bytes of the loops in the cache."""
        return sum(loop.size for loop in self._cached.values())

    async def play(self, slot: int, sound_id: str, rate: int, volume: float) -> None:
        """Play the sound under the call in a slot of this rate until its end, at this volume (0..1), and at
        `DUCKED_VOLUME` of it while the agent speaks. Raises `OSError` or `InvalidSound` when it cannot be read."""
        loop = await self._loop((sound_id, rate))
        self._pump.set_background(slot, loop.background, volume, volume * DUCKED_VOLUME)

    async def _loop(self, key: _Key) -> _LoadedLoop:
        cached = self._cached.pop(key, None)
        if cached is not None:
            self._cached[key] = cached
            return cached
        if key not in self._loading:
            self._loading[key] = asyncio.create_task(self._load(key), name="background sound")
        # Another call may wait for it after this one has ended.
        return await asyncio.shield(self._loading[key])

    async def _load(self, key: _Key) -> _LoadedLoop:
        try:
            loop = await asyncio.to_thread(self._render, *key)
        finally:
            del self._loading[key]
        self._cached[key] = loop
        while self.size > self._max_cache_bytes:
            del self._cached[next(iter(self._cached))]
        return loop

    def _render(self, sound_id: str, rate: int) -> _LoadedLoop:
        path = path_of(self._data_dir, sound_id)
        samples = resample_loop(read_wav(path), rate)
        if len(samples) == 0:
            raise InvalidSound(f"{path.name} holds no sound")
        return _LoadedLoop(self._pump.load_background(samples), samples.nbytes)


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
