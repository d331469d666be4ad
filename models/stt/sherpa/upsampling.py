"""Upsamples telephone audio to 16 kHz: every sample, and between each two an interpolated one."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples

RATE: Final = 16000
"""Hz that every model of `models.stt.sherpa` takes."""
TELEPHONE_RATE: Final = 8000
_HALF: Final = 24
"""Samples on either side of a new one that it is made of: it comes 3 ms late."""

Sound = NDArray[np.float32]


def _between() -> NDArray[np.float64]:
    """What the samples around the middle of two say for it: a sinc under a Kaiser window, flat to 3.6 kHz."""
    places = np.arange(2 * _HALF) - _HALF + 0.5
    weights = np.sinc(places) * np.kaiser(2 * _HALF, 6.0)
    return np.asarray(weights / weights.sum(), np.float64)


_BETWEEN: Final = _between()


class DoubledRate:
    """8 kHz to 16 kHz, without a seam between the pieces: one of these for each stream."""

    per_sample: Final = 2
    """Samples that come out for each that goes in."""

    def __init__(self) -> None:
        self._past = np.zeros(2 * _HALF - 1)

    def push(self, samples: Samples) -> Sound:
        """The next samples: mono int16, to twice as many from -1 to 1."""
        sound = np.concatenate([self._past, samples / 32768])
        self._past = sound[len(samples) :]
        wide = np.empty((len(samples), 2), np.float32)
        wide[:, 0] = sound[_HALF - 1 : _HALF - 1 + len(samples)]
        wide[:, 1] = np.convolve(sound, _BETWEEN, "valid")
        return wide.reshape(-1)


class SameRate:
    """16 kHz as it is."""

    per_sample: Final = 1

    def push(self, samples: Samples) -> Sound:
        """The next samples: mono int16, to as many from -1 to 1."""
        return samples.astype(np.float32) / np.float32(32768)


def at_model_rate(rate: int) -> DoubledRate | SameRate:
    """What makes sound of a call at `rate` Hz into a model's. Raises `ValueError` for others than 8000 and 16000."""
    if rate == RATE:
        return SameRate()
    if rate == TELEPHONE_RATE:
        return DoubledRate()
    raise ValueError(f"rate {rate} Hz: 8000 or 16000 are possible")
