"""Sounds of made calls: tones, music, noise, and the telephone's band. All `float64` at `RATE`, full scale 32768."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.models.end_of_turn import telephone_band
from media.audio_port import Samples
from media.background.presets import PRESETS

RATE: Final = 16_000
Sound = NDArray[np.float64]


def silence(ms: float) -> Sound:
    """Digital silence."""
    return np.zeros(round(ms * RATE / 1000))


def tone(ms: float, *frequencies_hz: float, peak: float = 6000.0) -> Sound:
    """Sines of equal level with edges of 4 ms."""
    time = np.arange(round(ms * RATE / 1000)) / RATE
    sound = np.sum([np.sin(2 * np.pi * hz * time) for hz in frequencies_hz], axis=0) * (peak / len(frequencies_hz))
    edge = np.minimum(1.0, np.minimum(time, time[::-1]) / 0.004)
    return np.asarray(sound * edge, np.float64)


def special_information_tones() -> Sound:
    """The three tones of ITU-T E.180."""
    return np.concatenate([tone(330, 950), silence(15), tone(330, 1400), silence(15), tone(330, 1800)])


def music(ms: float, rng: np.random.Generator) -> Sound:
    """Chords of plucked notes with overtones, one every 600 ms."""
    total = np.zeros(round(ms * RATE / 1000))
    length = round(1.6 * RATE)
    time = np.arange(length) / RATE
    for start in range(0, len(total), round(0.6 * RATE)):
        root = 220 * 2 ** (rng.integers(0, 12) / 12)
        for semitones in (0, 4, 7, 12):
            hz = root * 2 ** (semitones / 12)
            note = sum(np.sin(2 * np.pi * hz * n * time) / n**1.5 for n in (1, 2, 3, 4)) * np.exp(-2.5 * time)
            end = min(start + length, len(total))
            total[start:end] += 900 * note[: end - start]
    return total


def noise(length: int, kind: str, rng: np.random.Generator) -> Sound:
    """`white`, or the name of a preset background sound, at a root mean square of 1."""
    if kind == "white":
        return rng.standard_normal(length)
    loop = next(preset for preset in PRESETS if preset.key == kind).render().astype(np.float64)
    sound = np.resize(np.roll(loop, -int(rng.integers(len(loop)))), length)
    return np.asarray(sound / np.sqrt((sound**2).mean()), np.float64)


def line(sound: Sound, rate: int) -> Samples:
    """The sound as a call at `rate` brings it: at 8000 Hz in the telephone's band and through G.711 mu-law."""
    wide = np.clip(np.rint(sound), -32768, 32767).astype(np.int16)
    return wide if rate == RATE else _mulaw(telephone_band(wide))


def _mulaw(samples: Samples) -> Samples:
    """Quantized as by ITU-T G.711 mu-law (its continuous curve in 255 steps)."""
    value = samples / 32768
    curve = np.sign(value) * np.log1p(255 * np.abs(value)) / np.log(256)
    steps = np.rint(curve * 127) / 127
    return np.asarray(np.rint(np.sign(steps) * np.expm1(np.abs(steps) * np.log(256)) / 255 * 32767), np.int16)
