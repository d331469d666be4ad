"""Background sounds under calls: loops at the rates of calls, made once for all calls that play them."""

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

DUCKED: Final = 10 ** (-10 / 20)
"""The part of a sound's volume that is left of it under the agent's speech: 10 dB less is half as loud to the ear, so
the place stays the same and steps back. Speech is about 22 dB under full scale and a preset 26, so even at volume 1
there are 14 dB between them; more than 15 add nothing to how well speech is understood (IEC 60268-16)."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of loops that are kept for the next call; the longest unused goes first. Calls keep what they play."""
_MARGIN: Final = SAMPLE_RATE // 10
"""Samples around a loop that the resampler sees: its filter is shorter."""
_Key = tuple[str, int]


@dataclass(frozen=True)
class _Loop:
    background: Background
    size: int


class BackgroundSounds:
    """The background sounds of all calls on one pump. For the event loop."""

    def __init__(self, pump: Pump, data_dir: Path, most_bytes: int = MOST_BYTES) -> None:
        self._pump = pump
        self._data_dir = data_dir
        self._most_bytes = most_bytes
        self._kept: dict[_Key, _Loop] = {}
        self._loading: dict[_Key, asyncio.Task[_Loop]] = {}

    @property
    def size(self) -> int:
        """Bytes of the loops that are kept."""
        return sum(loop.size for loop in self._kept.values())

    async def play(self, slot: int, sound_id: str, rate: int, volume: float) -> None:
        """Play the sound under the call in a slot of this rate until its end, at this volume (0..1), and at `DUCKED` of
        it while the agent speaks. Raises `OSError` or `InvalidSound` when the sound cannot be read."""
        loop = await self._loop((sound_id, rate))
        self._pump.set_background(slot, loop.background, volume, volume * DUCKED)

    async def _loop(self, key: _Key) -> _Loop:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept[key] = kept
            return kept
        if key not in self._loading:
            self._loading[key] = asyncio.create_task(self._load(key), name="background sound")
        # Another call may wait for it when this one has ended.
        return await asyncio.shield(self._loading[key])

    async def _load(self, key: _Key) -> _Loop:
        try:
            loop = await asyncio.to_thread(self._made, *key)
        finally:
            del self._loading[key]
        self._kept[key] = loop
        while self.size > self._most_bytes:
            del self._kept[next(iter(self._kept))]
        return loop

    def _made(self, sound_id: str, rate: int) -> _Loop:
        path = path_of(self._data_dir, sound_id)
        samples = at_rate(read_wav(path), rate)
        if len(samples) == 0:
            raise InvalidSound(f"{path.name} holds no sound")
        return _Loop(self._pump.load_background(samples), samples.nbytes)


def at_rate(loop: Samples, rate: int) -> Samples:
    """A loop at SAMPLE_RATE as a loop at another rate, without a seam: resampled as the circle that it is, more than
    once around where only so its length is a whole number of the new samples."""
    if rate == SAMPLE_RATE or len(loop) == 0:
        return loop
    step = SAMPLE_RATE // gcd(rate, SAMPLE_RATE)
    loop = np.tile(loop, step // gcd(step, len(loop)))
    margin = _MARGIN * rate // SAMPLE_RATE
    length = len(loop) * rate // SAMPLE_RATE
    resampled: Samples = soxr.resample(np.pad(loop, _MARGIN, mode="wrap"), SAMPLE_RATE, rate)
    return resampled[margin : margin + length]
