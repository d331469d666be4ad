"""Preset background sounds, which every organization has: they are synthesized, so that no recording has to be shipped
or licensed.

Each is a loop without a seam, at one level, and lives mostly between 200 Hz and 4 kHz, where a telephone carries it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from media.background.babble import BabblePattern, babble
from media.background.loop_synthesis import SAMPLE_RATE, Loop, band, drift, filtered, in_room, leveled, noise, scattered

LEVEL_DBFS: Final = -26.0
"""RMS of each preset, dB below full scale (32768)."""
_PEAK: Final = 0.45
"""No sample reaches this part of full scale (-7 dBFS)."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A built-in sound. `key` never changes; `render` gives mono int16 at SAMPLE_RATE, the same each time, and takes
    some tenths of a second of computing."""

    key: str
    name: str
    description: str
    render: Callable[[], Samples]


def _office() -> Samples:
    """A few people at some distance, somebody typing, the air conditioning."""
    rng, length = np.random.default_rng(1), 30 * SAMPLE_RATE
    people = in_room(rng, babble(rng, length, BabblePattern(voices=6, pause_s=1.6)), 0.4, direct=0.35)
    murmur = leveled(filtered(people, band(180, 2800))) * drift(rng, length, 0.3, 1.0)
    keys = leveled(in_room(rng, _typing(rng, length), 0.3, direct=0.6), -15)
    return _finished(murmur + keys + _air_conditioning(rng, length))


def _rain() -> Samples:
    """Steady rain: a bed of countless far drops, the many near ones, some that splash."""
    rng, length = np.random.default_rng(2), 24 * SAMPLE_RATE
    far = noise(rng, length, band(500, 3200, order=1)) * drift(rng, length, 0.4, 1.2)
    near = leveled(_drops(rng, length, per_second=400, pitch_hz=(1800, 5500), decay_s=0.0012), -5)
    splashes = leveled(_drops(rng, length, per_second=25, pitch_hz=(700, 2500), decay_s=0.006), -10)
    return _finished(far + (near + splashes) * drift(rng, length, 0.5, 1.5))


def _cafe() -> Samples:
    """Many people in a lively room, cups and spoons, steam from the coffee machine at moments."""
    rng, length = np.random.default_rng(3), 30 * SAMPLE_RATE
    people = filtered(babble(rng, length, BabblePattern(voices=14, pause_s=0.9)), band(180, 3200))
    sounds = leveled(people) + leveled(_dishes(rng, length), -13) + leveled(_steam(rng, length), -14)
    return _finished(in_room(rng, sounds, 0.6, direct=0.4) * drift(rng, length, 0.2, 0.8))


def _white_noise() -> Samples:
    """Even noise."""
    rng = np.random.default_rng(4)
    return _finished(noise(rng, 20 * SAMPLE_RATE, band(100, 7000, order=6)))


PRESETS: Final = (
    Preset("office", "Office", "People talking in the distance, typing, air conditioning", _office),
    Preset("rain", "Rain", "Steady rain with drops nearby", _rain),
    Preset("cafe", "Cafe", "A lively room, cups and spoons, a coffee machine", _cafe),
    Preset("white_noise", "White noise", "Even noise", _white_noise),
)


def _finished(loop: Loop) -> Samples:
    """Without rumble, at the common level, the highest peaks rounded off."""
    level = leveled(filtered(loop, band(120, 7400, order=4)), LEVEL_DBFS)
    level = leveled(_PEAK * np.tanh(level / _PEAK), LEVEL_DBFS)
    return np.rint(np.clip(level, -_PEAK, _PEAK) * 32768).astype(np.int16)


def _drops(
    rng: np.random.Generator, length: int, per_second: float, pitch_hz: tuple[float, float], decay_s: float
) -> Loop:
    """Drops at random moments, few loud and many soft: each a short ringing that rises like a closing bubble."""
    count = int(per_second * length / SAMPLE_RATE)
    times = np.arange(int(6 * decay_s * SAMPLE_RATE)) / SAMPLE_RATE
    decay = decay_s * rng.uniform(0.5, 1.2, (count, 1))
    pitch = pitch_hz[0] * (pitch_hz[1] / pitch_hz[0]) ** rng.random((count, 1))
    ringing = np.sin(2 * np.pi * pitch * (times + 0.15 * times**2 / decay)) * np.exp(-times / decay)
    return scattered(length, rng.integers(length, size=count), rng.lognormal(0, 0.8, (count, 1)) * ringing)


def _typing(rng: np.random.Generator, length: int) -> Loop:
    """Runs of keys: each a click when it goes down and a softer one when it comes up."""
    downs: list[NDArray[np.float64]] = []
    at = 0.0
    while at < length / SAMPLE_RATE:
        run = at + np.cumsum(rng.uniform(0.09, 0.24, int(rng.integers(6, 24))))
        downs.append(run)
        at = run[-1] + rng.exponential(1.5)
    down = np.concatenate(downs)
    up = down + rng.uniform(0.05, 0.09, len(down))
    moments = (np.concatenate([down, up]) * SAMPLE_RATE).astype(np.int64)
    clicks = rng.standard_normal((len(moments), 160)) * np.exp(-np.arange(160) / 25)
    strength = np.repeat([1.0, 0.4], len(down)) * rng.uniform(0.5, 1.0, len(moments))
    return filtered(scattered(length, moments, strength[:, None] * clicks), band(900, 3500))


def _air_conditioning(rng: np.random.Generator, length: int) -> Loop:
    """Rushing air and the hum of a fan, whole periods of it around the circle."""
    turns = 2 * np.pi * np.arange(length) / SAMPLE_RATE
    hum = sum((np.sin(hertz * turns) / harmonic for harmonic, hertz in enumerate((120, 240, 360), 1)), np.zeros(length))
    return leveled(noise(rng, length, band(150, 600, order=1)), -9) + leveled(hum, -20)


def _dishes(rng: np.random.Generator, length: int) -> Loop:
    """Cups, plates and spoons: bursts of some strokes, each a handful of partials that ring shortly."""
    times = np.arange(int(0.35 * SAMPLE_RATE)) / SAMPLE_RATE
    moments: list[NDArray[np.float64]] = []
    sounds: list[NDArray[np.float64]] = []
    for _ in range(26):
        strokes = rng.choice([1, 1, 2, 3, 6])
        partials = rng.uniform(1300, 3000) * np.array([1.0, 1.58, 2.24, 2.92]) * rng.uniform(0.97, 1.03, 4)
        decays = rng.uniform(0.012, 0.06) * np.array([1.0, 0.8, 0.6, 0.4])
        ringing = np.sin(2 * np.pi * partials[:, None] * times) * np.exp(-times / decays[:, None])
        stroke = rng.uniform(0.3, 1.0, 4) @ ringing
        moments.append(rng.uniform(0, length / SAMPLE_RATE) + np.cumsum(rng.uniform(0.1, 0.3, strokes)))
        sounds.append(rng.lognormal(0, 0.5) * rng.uniform(0.5, 1.0, (strokes, 1)) * stroke)
    return scattered(length, (np.concatenate(moments) * SAMPLE_RATE).astype(np.int64), np.concatenate(sounds))


def _steam(rng: np.random.Generator, length: int) -> Loop:
    """Steam through milk: hiss that swells, sputters and stops, twice."""
    hiss = noise(rng, length, band(1500, 5000)) * drift(rng, length, 12, 2.5)
    seconds = np.arange(length) / SAMPLE_RATE
    return hiss * (_between(seconds, 6.0, 9.5) + _between(seconds, 19.0, 21.2))


def _between(seconds: NDArray[np.float64], begin: float, end: float) -> NDArray[np.float64]:
    """0 outside of the two moments, 1 between them, with soft edges of 0.4 s."""
    return np.clip(np.minimum(seconds - begin, end - seconds) / 0.4, 0, 1) ** 2
