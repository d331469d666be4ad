"""Test signals, and their measurement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples


def tone(rate: int, hz: float, seconds: float, level: int = 8000) -> Samples:
    """A sine, int16[seconds * rate]."""
    return (level * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate)) / rate)).astype(np.int16)


def loudest_hz(samples: Samples | NDArray[np.float64], rate: int) -> float:
    """The frequency with the most energy, Hz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * rate / len(samples)


def audible_s(samples: Samples, rate: int, level: int = 800) -> float:
    """Seconds from the first to the last sample over `level`."""
    at = np.flatnonzero(np.abs(samples.astype(np.int32)) > level)
    return float(at[-1] - at[0] + 1) / rate if len(at) else 0.0


def delay_of(echo: Samples, original: Samples) -> int:
    """The delay of `echo` against `original` in samples, by their correlation; at most half of their length."""
    size = len(original)
    product = np.fft.rfft(echo[:size], 2 * size) * np.conj(np.fft.rfft(original, 2 * size))
    return int(np.argmax(np.fft.irfft(product)[: size // 2]))


def mulaw(samples: Samples) -> bytes:
    """G.711 mu-law, by the nearest of its 256 levels."""
    return _nearest(samples, mulaw_levels())


def alaw(samples: Samples) -> bytes:
    """G.711 A-law, by the nearest of its 256 levels."""
    return _nearest(samples, alaw_levels())


def from_mulaw(payload: bytes) -> Samples:
    """The samples of a G.711 mu-law payload, int16."""
    return mulaw_levels()[np.frombuffer(payload, np.uint8)].astype(np.int16)


def from_alaw(payload: bytes) -> Samples:
    """The samples of a G.711 A-law payload, int16."""
    return alaw_levels()[np.frombuffer(payload, np.uint8)].astype(np.int16)


def mulaw_levels() -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The linear level of each mu-law byte (ITU-T G.711), int32[256]."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = ((((code & 0x0F) << 3) + 0x84) << ((code & 0x70) >> 4)) - 0x84
    return np.where(code & 0x80, -magnitude, magnitude)


def alaw_levels() -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The linear level of each A-law byte (ITU-T G.711), int32[256]."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    segment, step = (code & 0x70) >> 4, (code & 0x0F) << 4
    magnitude = np.where(segment == 0, step + 8, (step + 0x108) << np.maximum(segment - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude)


def _nearest(samples: Samples, levels: np.ndarray[tuple[int], np.dtype[np.int32]]) -> bytes:
    order = np.argsort(levels, kind="stable")
    middles = (levels[order][1:] + levels[order][:-1]) / 2
    return bytes(order[np.searchsorted(middles, samples)].astype(np.uint8))
