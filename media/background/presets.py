"""Preset background sounds, available to every organization. They are synthesized, so that no recording has to be
shipped or licensed.

Each is a seamless loop at the same level, mostly between 200 Hz and 4 kHz, the band that a telephone carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from media.background.babble import BabblePattern, synthesize_babble
from media.background.loop_synthesis import (
    SAMPLE_RATE,
    Loop,
    add_reverb,
    apply_filter,
    band_pass,
    gain_drift,
    normalize_level,
    overlap_add,
    shaped_noise,
)

LEVEL_DBFS: Final = -26.0
"""RMS level of each preset, dB below full scale (32768)."""
_PEAK: Final = 0.45
"""Peak limit of a preset as a share of full scale (-7 dBFS)."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A built-in sound. `key` never changes; `render` returns mono int16 at SAMPLE_RATE, the same each time, and takes
    some tenths of a second of CPU time."""

    key: str
    name: str
    description: str
    render: Callable[[], Samples]


def _office() -> Samples:
    """A few people at some distance, typing, air conditioning."""
    rng, length = np.random.default_rng(1), 30 * SAMPLE_RATE
    people = add_reverb(rng, synthesize_babble(rng, length, BabblePattern(voices=6, pause_s=1.6)), 0.4, direct=0.35)
    murmur = normalize_level(apply_filter(people, band_pass(180, 2800))) * gain_drift(rng, length, 0.3, 1.0)
    keys = normalize_level(add_reverb(rng, _typing(rng, length), 0.3, direct=0.6), -15)
    return _to_samples(murmur + keys + _air_conditioning(rng, length))


def _rain() -> Samples:
    """Steady rain: a bed of countless distant drops, many near ones, some splashes."""
    rng, length = np.random.default_rng(2), 24 * SAMPLE_RATE
    far = shaped_noise(rng, length, band_pass(500, 3200, order=1)) * gain_drift(rng, length, 0.4, 1.2)
    near = normalize_level(_drops(rng, length, per_second=400, pitch_hz=(1800, 5500), decay_s=0.0012), -5)
    splashes = normalize_level(_drops(rng, length, per_second=25, pitch_hz=(700, 2500), decay_s=0.006), -10)
    return _to_samples(far + (near + splashes) * gain_drift(rng, length, 0.5, 1.5))


def _cafe() -> Samples:
    """Many people in a lively room, cups and spoons, now and then steam from the coffee machine."""
    rng, length = np.random.default_rng(3), 30 * SAMPLE_RATE
    people = apply_filter(synthesize_babble(rng, length, BabblePattern(voices=14, pause_s=0.9)), band_pass(180, 3200))
    sounds = (
        normalize_level(people) + normalize_level(_dishes(rng, length), -13) + normalize_level(_steam(rng, length), -14)
    )
    return _to_samples(add_reverb(rng, sounds, 0.6, direct=0.4) * gain_drift(rng, length, 0.2, 0.8))


def _white_noise() -> Samples:
    """Stationary white noise."""
    rng = np.random.default_rng(4)
    return _to_samples(shaped_noise(rng, 20 * SAMPLE_RATE, band_pass(100, 7000, order=6)))


PRESETS: Final = (
    Preset("office", "Office", "People talking in the distance, typing, air conditioning", _office),
    Preset("rain", "Rain", "Steady rain with drops nearby", _rain),
    Preset("cafe", "Cafe", "A lively room, cups and spoons, a coffee machine", _cafe),
    Preset("white_noise", "White noise", "Even noise", _white_noise),
)


def _to_samples(loop: Loop) -> Samples:
    """Without rumble, at the common level, with the highest peaks rounded off."""
    level = normalize_level(apply_filter(loop, band_pass(120, 7400, order=4)), LEVEL_DBFS)
    level = normalize_level(_PEAK * np.tanh(level / _PEAK), LEVEL_DBFS)
    return np.rint(np.clip(level, -_PEAK, _PEAK) * 32768).astype(np.int16)


def _drops(
    rng: np.random.Generator, length: int, per_second: float, pitch_hz: tuple[float, float], decay_s: float
) -> Loop:
    """Drops at random times, few loud and many soft: each a short ringing whose pitch rises like that of a closing
    bubble."""
    count = int(per_second * length / SAMPLE_RATE)
    times = np.arange(int(6 * decay_s * SAMPLE_RATE)) / SAMPLE_RATE
    decay = decay_s * rng.uniform(0.5, 1.2, (count, 1))
    pitch = pitch_hz[0] * (pitch_hz[1] / pitch_hz[0]) ** rng.random((count, 1))
    ringing = np.sin(2 * np.pi * pitch * (times + 0.15 * times**2 / decay)) * np.exp(-times / decay)
    return overlap_add(length, rng.integers(length, size=count), rng.lognormal(0, 0.8, (count, 1)) * ringing)


def _typing(rng: np.random.Generator, length: int) -> Loop:
    """Bursts of keystrokes: each a click when the key goes down and a softer one when it comes up."""
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
    return apply_filter(overlap_add(length, moments, strength[:, None] * clicks), band_pass(900, 3500))


def _air_conditioning(rng: np.random.Generator, length: int) -> Loop:
    """Rushing air and the hum of a fan, in integral periods around the loop."""
    turns = 2 * np.pi * np.arange(length) / SAMPLE_RATE
    hum = sum((np.sin(hertz * turns) / harmonic for harmonic, hertz in enumerate((120, 240, 360), 1)), np.zeros(length))
    return normalize_level(shaped_noise(rng, length, band_pass(150, 600, order=1)), -9) + normalize_level(hum, -20)


def _dishes(rng: np.random.Generator, length: int) -> Loop:
    """Cups, plates and spoons: bursts of strokes, each with four partials that ring shortly."""
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
    return overlap_add(length, (np.concatenate(moments) * SAMPLE_RATE).astype(np.int64), np.concatenate(sounds))


def _steam(rng: np.random.Generator, length: int) -> Loop:
    """Steam through milk: hiss that swells, sputters and stops, twice."""
    hiss = shaped_noise(rng, length, band_pass(1500, 5000)) * gain_drift(rng, length, 12, 2.5)
    seconds = np.arange(length) / SAMPLE_RATE
    return hiss * (_fade(seconds, 6.0, 9.5) + _fade(seconds, 19.0, 21.2))


def _fade(seconds: NDArray[np.float64], begin: float, end: float) -> NDArray[np.float64]:
    """A fade-in and fade-out: 0 outside of the two times, 1 between them, with slopes of 0.4 s."""
    return np.clip(np.minimum(seconds - begin, end - seconds) / 0.4, 0, 1) ** 2
