"""Dither: a little noise under all audio that is recognized."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples

LEVEL: Final = 6.0
"""Standard deviation in steps of 16 bits (-75 dB)."""


class Dither:
    """Adds the noise of a quiet room to one stream: digital silence is like no room that an acoustic model knows, and
    it hears words in it. The same stream gets the same noise each time."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(0)

    def push(self, samples: Samples | NDArray[np.float64]) -> NDArray[np.float64]:
        """Sound `[n]` in steps of 16 bits -> `float64[n]` with noise."""
        return samples + LEVEL * self._generator.standard_normal(len(samples))


class DitheredWideBand:
    """Makes one stream of 16 kHz sound what the model knows: it has the noise of a room."""

    def __init__(self) -> None:
        self._noise = Dither()

    def push(self, samples: Samples) -> Samples:
        """`int16[n]` -> `int16[n]`, both at 16 kHz."""
        return np.clip(np.rint(self._noise.push(samples)), -32768, 32767).astype(np.int16)
