"""Building blocks of seamless loops: all of them work on a circle, whose end is its beginning.

A loop is `float64[length]` at SAMPLE_RATE; filters are circular convolutions, events that reach past the end go on at
the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE: Final = 16_000
"""Of every background sound, Hz."""

Loop = NDArray[np.float64]
Gain = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Amplification (a factor) at each of some frequencies (Hz)."""


def band(low_hz: float, high_hz: float, order: int = 2) -> Gain:
    """Passes what is between the two frequencies; falls by 6 dB an octave and order outside of them."""

    def gain(frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        above = (frequencies / low_hz) ** order
        below = (frequencies / high_hz) ** order
        return above / np.sqrt(1 + above**2) / np.sqrt(1 + below**2)

    return gain


def filtered(loop: Loop, gain: Gain) -> Loop:
    """The loop with the spectrum weighted, zero phase."""
    frequencies = np.arange(len(loop) // 2 + 1, dtype=np.float64) * (SAMPLE_RATE / len(loop))
    return np.fft.irfft(np.fft.rfft(loop) * gain(frequencies), len(loop))


def leveled(loop: Loop, level_db: float = 0.0) -> Loop:
    """The loop at this RMS level, dB over 1.0."""
    scaled: Loop = loop * (10 ** (level_db / 20) / np.sqrt(np.mean(loop**2)))
    return scaled


def noise(rng: np.random.Generator, length: int, gain: Gain) -> Loop:
    """Steady noise with this spectrum, RMS 1."""
    return leveled(filtered(rng.standard_normal(length), gain))


def drift(rng: np.random.Generator, length: int, fastest_hz: float, depth_db: float) -> Loop:
    """A factor that wanders around 1 by about `depth_db` (RMS), not faster than `fastest_hz`."""
    bins = int(fastest_hz * length / SAMPLE_RATE)
    spectrum = np.zeros(length // 2 + 1, np.complex128)
    spectrum[1 : bins + 1] = rng.standard_normal(bins) + 1j * rng.standard_normal(bins)
    factor: Loop = 10 ** (leveled(np.fft.irfft(spectrum, length)) * depth_db / 20)
    return factor


def scattered(length: int, starts: NDArray[np.int64], sounds: NDArray[np.float64]) -> Loop:
    """The sum of the rows of `sounds[n, width]`, row i from sample `starts[i]` on, around the end."""
    places = (starts[:, None] + np.arange(sounds.shape[1])) % length
    return np.asarray(np.bincount(places.ravel(), sounds.ravel(), length), np.float64)


def in_room(rng: np.random.Generator, loop: Loop, reverberation_s: float, direct: float) -> Loop:
    """The loop as heard at some distance in a room: `direct` (0..1, share of the energy) comes straight, the rest out
    of a decay by 60 dB in `reverberation_s`, modelled as fading noise (Moorer 1979)."""
    times = np.arange(int(reverberation_s * SAMPLE_RATE)) / SAMPLE_RATE
    response = rng.standard_normal(len(times)) * 10 ** (-3 * times / reverberation_s)
    response *= np.sqrt((1 - direct) / np.sum(response**2))
    response[0] += np.sqrt(direct)
    return np.fft.irfft(np.fft.rfft(loop) * np.fft.rfft(response, len(loop)), len(loop))
