"""Upsampling of telephone audio to 16 kHz: every sample, and an interpolated one between each two."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples

RATE: Final = 16000
"""Sample rate of all models of `models.stt.sherpa`, Hz."""
TELEPHONE_RATE: Final = 8000
_HALF: Final = 24
"""Samples on either side of an interpolated one that contribute to it: it is 3 ms late."""

Sound = NDArray[np.float32]


def _interpolation_weights() -> NDArray[np.float64]:
    """Weights of the interpolation in the middle of two samples: a sinc with a Kaiser window, flat to 3.6 kHz."""
    offsets = np.arange(2 * _HALF) - _HALF + 0.5
    weights = np.sinc(offsets) * np.kaiser(2 * _HALF, 6.0)
    return np.asarray(weights / weights.sum(), np.float64)


_INTERPOLATION: Final = _interpolation_weights()


class Upsampler:
    """8 kHz to 16 kHz, stateful: one for each stream."""

    per_sample: Final = 2
    """Output samples per input sample."""

    def __init__(self) -> None:
        self._past = np.zeros(2 * _HALF - 1)

    def push(self, samples: Samples) -> Sound:
        """The next samples: mono int16 -> twice as many in -1..1."""
        sound = np.concatenate([self._past, samples / 32768])
        self._past = sound[len(samples) :]
        wide = np.empty((len(samples), 2), np.float32)
        wide[:, 0] = sound[_HALF - 1 : _HALF - 1 + len(samples)]
        wide[:, 1] = np.convolve(sound, _INTERPOLATION, "valid")
        return wide.reshape(-1)


class PassThrough:
    """16 kHz without a change of rate."""

    per_sample: Final = 1

    def push(self, samples: Samples) -> Sound:
        """The next samples: mono int16 -> as many in -1..1."""
        return samples.astype(np.float32) / np.float32(32768)


def input_converter(rate: int) -> Upsampler | PassThrough:
    """The converter of audio at `rate` Hz to a model's input. Raises `ValueError` for rates other than 8000 and
    16000."""
    if rate == RATE:
        return PassThrough()
    if rate == TELEPHONE_RATE:
        return Upsampler()
    raise ValueError(f"rate {rate} Hz: only 8000 and 16000 are supported")
