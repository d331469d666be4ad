"""Babble noise: the murmur of people talking, without words, by formant synthesis of random syllables.

A voice is a train of glottal pulses; each starts one damped oscillation for every formant of the vocal tract at that
moment (the CHANT method, Rodet 1984); consonants are bursts of noise between the syllables. Pitch, loudness and
formants are drawn on a grid of 10 ms. Vowels: Peterson and Barney 1952, men's averages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.background.loop_synthesis import SAMPLE_RATE, Loop, band_pass, overlap_add, shaped_noise

_GRID: Final = 160
"""Samples between two points of the grid."""
_VOWELS: Final = np.array([
    (270, 2290, 3010), (390, 1990, 2550), (530, 1840, 2480), (660, 1720, 2410), (730, 1090, 2440),
    (570, 840, 2410), (440, 1020, 2240), (300, 870, 2240), (640, 1190, 2390), (490, 1350, 1690),
], np.float64)  # fmt: skip
_BANDWIDTHS_HZ: Final = (70.0, 100.0, 140.0)
_FORMANT_GAINS: Final = (1.0, 0.6, 0.3)
_PULSE_SAMPLES: Final = 240
"""Length of a formant's ringing: the narrowest has then fallen by 29 dB."""


@dataclass(frozen=True, slots=True)
class BabblePattern:
    """The number of voices, and the mean silence of a voice between two phrases, s."""

    voices: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class _Tracks:
    """One voice on the grid: pitch (Hz), loudness of voiced sound and of consonants, formants `[points, 3]` (Hz)."""

    pitch: NDArray[np.float64]
    voiced: NDArray[np.float64]
    consonants: NDArray[np.float64]
    formants: NDArray[np.float64]


def synthesize_babble(rng: np.random.Generator, length: int, pattern: BabblePattern) -> Loop:
    """The sum of all voices; `length` is a multiple of 10 ms."""
    total = np.zeros(length)
    hiss = np.zeros(length // _GRID)
    for _ in range(pattern.voices):
        tracks = _draw_tracks(rng, length // _GRID, pattern.pause_s)
        nearness = rng.uniform(0.4, 1.0)
        total += nearness * _render_voiced(length, tracks)
        hiss += nearness * tracks.consonants
    envelope = np.interp(np.arange(length) / _GRID, np.arange(len(hiss)), hiss, period=len(hiss))
    return total + 0.25 * envelope * shaped_noise(rng, length, band_pass(2500, 5500))


def _draw_tracks(rng: np.random.Generator, points: int, pause_s: float) -> _Tracks:
    """Draws the phrases and pauses of one voice once around the loop, from a random point on."""
    base = np.exp(rng.uniform(np.log(95), np.log(220)))
    # Smaller people have higher voices and shorter vocal tracts.
    size = 1 + 0.17 * (base - 95) / 125
    tracks = _Tracks(np.full(points, base), np.zeros(points), np.zeros(points), np.tile(_VOWELS[8] * size, (points, 1)))
    first = int(rng.integers(points))
    at = 0
    while at < points - 100:
        for share in np.linspace(0, 1, int(rng.integers(3, 13))):
            span = np.arange(at, at + int(rng.uniform(12, 26)))
            at = int(span[-1]) + 1
            if at >= points:
                break
            _draw_syllable(rng, tracks, (first + span) % points, base * (1.12 - 0.24 * share), size)
        at += 20 + int(100 * rng.exponential(pause_s))
    return _Tracks(*(_smoothed(track) for track in (tracks.pitch, tracks.voiced, tracks.consonants, tracks.formants)))


def _draw_syllable(
    rng: np.random.Generator, tracks: _Tracks, span: NDArray[np.int64], pitch: float, size: float
) -> None:
    """Draws one syllable: with or without a consonant in its first third, then a vowel that swells and falls."""
    stress = rng.uniform(0.45, 1.0)
    rise = np.sin(np.pi * (np.arange(len(span)) + 0.5) / len(span))
    tracks.pitch[span] = pitch * (1 + 0.12 * (stress - 0.7) * rise)
    tracks.voiced[span] = stress * rise**0.7
    tracks.formants[span] = _VOWELS[rng.integers(len(_VOWELS))] * size
    if rng.random() < 0.55:
        onset = span[: len(span) // 3]
        tracks.voiced[onset] *= 0.25
        tracks.consonants[onset] = rng.uniform(0.2, 1.0)


def _smoothed(track: NDArray[np.float64]) -> NDArray[np.float64]:
    """Formant transitions take about 50 ms: a running weighted mean around the loop."""
    weights = np.hanning(9)[1:-1] / np.hanning(9).sum()
    return sum((weight * np.roll(track, by, axis=0) for by, weight in enumerate(weights, -3)), np.zeros_like(track))


def _render_voiced(length: int, tracks: _Tracks) -> Loop:
    """The glottal pulses of one voice, filtered by its vocal tract."""
    points = len(tracks.pitch)
    phase = np.concatenate([[0.0], np.cumsum(tracks.pitch * _GRID / SAMPLE_RATE)])
    # An integral number of pulses around the loop.
    phase *= np.round(phase[-1]) / phase[-1]
    times = np.interp(np.arange(round(phase[-1])), phase, np.arange(points + 1))
    loudness = np.interp(times, np.arange(points), tracks.voiced, period=points)
    audible = loudness > 0.01
    times, loudness = times[audible], loudness[audible]
    starts = np.ceil(times * _GRID)
    since = (np.arange(_PULSE_SAMPLES) + (starts - times * _GRID)[:, None]) / SAMPLE_RATE
    sound = np.zeros_like(since)
    for track, bandwidth, gain in zip(tracks.formants.T, _BANDWIDTHS_HZ, _FORMANT_GAINS, strict=True):
        formant = np.interp(times, np.arange(points), track, period=points)
        ringing = gain * np.exp(-np.pi * bandwidth * np.arange(_PULSE_SAMPLES) / SAMPLE_RATE)
        sound += ringing * np.sin(2 * np.pi * formant[:, None] * since)
    return overlap_add(length, starts.astype(np.int64), loudness[:, None] * sound)
