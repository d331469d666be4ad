"""Synthesis of seamless loops: all functions are circular, so that the end of a loop continues at its beginning.

A loop is `float64[length]` at SAMPLE_RATE; filters are circular convolutions, and a sound that reaches past the end
continues at the beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE: Final = 16_000
"""Sample rate of all background sounds, Hz."""

Loop = NDArray[np.float64]
FrequencyResponse = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Amplification (a factor) at each of an array of frequencies (Hz)."""


def band_pass(low_hz: float, high_hz: float, order: int = 2) -> FrequencyResponse:
    """A band-pass between the two frequencies, with a slope of 6 dB per octave and order on either side."""

    def response(frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        above = (frequencies / low_hz) ** order
        below = (frequencies / high_hz) ** order
        return above / np.sqrt(1 + above**2) / np.sqrt(1 + below**2)

    return response


def apply_filter(loop: Loop, response: FrequencyResponse) -> Loop:
    """The loop with its spectrum weighted, zero phase."""
    frequencies = np.arange(len(loop) // 2 + 1, dtype=np.float64) * (SAMPLE_RATE / len(loop))
    return np.fft.irfft(np.fft.rfft(loop) * response(frequencies), len(loop))


def normalize_level(loop: Loop, level_db: float = 0.0) -> Loop:
    """The loop scaled to this RMS level, dB relative to 1.0."""
    scaled: Loop = loop * (10 ** (level_db / 20) / np.sqrt(np.mean(loop**2)))
    return scaled


def shaped_noise(rng: np.random.Generator, length: int, response: FrequencyResponse) -> Loop:
    """Stationary noise with this spectrum, RMS 1."""
    return normalize_level(apply_filter(rng.standard_normal(length), response))


def gain_drift(rng: np.random.Generator, length: int, fastest_hz: float, depth_db: float) -> Loop:
    """A slow random gain: a factor around 1 that deviates by `depth_db` (RMS), with no component above `fastest_hz`."""
    bins = int(fastest_hz * length / SAMPLE_RATE)
    spectrum = np.zeros(length // 2 + 1, np.complex128)
    spectrum[1 : bins + 1] = rng.standard_normal(bins) + 1j * rng.standard_normal(bins)
    factor: Loop = 10 ** (normalize_level(np.fft.irfft(spectrum, length)) * depth_db / 20)
    return factor


def overlap_add(length: int, starts: NDArray[np.int64], sounds: NDArray[np.float64]) -> Loop:
    """The circular sum of the rows of `sounds[n, width]`, row i from sample `starts[i]` on."""
    indices = (starts[:, None] + np.arange(sounds.shape[1])) % length
    return np.asarray(np.bincount(indices.ravel(), sounds.ravel(), length), np.float64)


def add_reverb(rng: np.random.Generator, loop: Loop, reverberation_s: float, direct: float) -> Loop:
    """The loop with reverberation: `direct` (0..1, share of the energy) is the direct sound, the rest a decay by 60 dB
    in `reverberation_s`, modelled as fading noise (Moorer 1979)."""
    times = np.arange(int(reverberation_s * SAMPLE_RATE)) / SAMPLE_RATE
    response = rng.standard_normal(len(times)) * 10 ** (-3 * times / reverberation_s)
    response *= np.sqrt((1 - direct) / np.sum(response**2))
    response[0] += np.sqrt(direct)
    return np.fft.irfft(np.fft.rfft(loop) * np.fft.rfft(response, len(loop)), len(loop))
