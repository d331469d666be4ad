"""Dither: low noise added to all audio that is recognized."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples

LEVEL: Final = 6.0
"""Standard deviation in steps of 16 bits (-75 dB)."""


class Dither:
    """Adds the noise of a quiet room to one stream, because an acoustic model, which knows no digital silence, hears
    words in it. The same stream always gets the same noise."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(0)

    def push(self, samples: Samples | NDArray[np.float64]) -> NDArray[np.float64]:
        """Audio `[n]` in steps of 16 bits -> `float64[n]` with noise."""
        return samples + LEVEL * self._generator.standard_normal(len(samples))


class WidebandInput:
    """The input of the acoustic model for one stream of 16 kHz audio, which only needs dither."""

    def __init__(self) -> None:
        self._noise = Dither()

    def push(self, samples: Samples) -> Samples:
        """`int16[n]` -> `int16[n]`, both at 16 kHz."""
        return np.clip(np.rint(self._noise.push(samples)), -32768, 32767).astype(np.int16)
