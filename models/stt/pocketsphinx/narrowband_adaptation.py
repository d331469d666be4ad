"""Adapts narrow-band telephone audio to a wide-band acoustic model: doubles the sample rate and roughly restores the
band that the line cut off (bandwidth extension).

A telephone line carries 300 to 3400 Hz; the model was trained up to 6800 Hz, where an empty band does not look like
speech. Doubling the rate without a filter mirrors 0..4 kHz into 4..8 kHz; the attenuated mirror image replaces the lost
band ("spectral folding", Makhoul and Berouti 1979). The rest of the difference is a linear change of the model's means
(MLLR, Leggetter and Woodland 1995), read from `narrowband_adaptation.json`; `bench/models/fit_telephone_band.py` fits
it on the same speech with and without the line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from models.stt.pocketsphinx.dither import Dither

IMAGE_DB: Final = -10.0
"""Level of the mirror image relative to the original band, dB."""
LINE_HZ: Final = (300.0, 3400.0)
_LINE_TAPS: Final = 161
_TAPS: Final = 64
_DIMENSIONS: Final = 13
_STREAMS: Final = 3
"""The model's features: cepstra, their first and their second differences."""


def folding_filter(image_db: float = IMAGE_DB) -> NDArray[np.float64]:
    """Coefficients `float64[2, 32]` of the two phases: gain 1 below 4 kHz, `image_db` above, linear phase, 16 kHz."""
    length = _TAPS - 1
    middle = length // 2
    n = np.arange(length) - middle
    low = np.sinc(n / 2) * np.hamming(length)
    low /= low.sum()
    through = np.zeros(length)
    through[middle] = 1.0
    # Inserting zeros halves the level: hence the factor 2.
    shelf = 2 * (low + 10 ** (image_db / 20) * (through - low))
    return np.append(shelf, 0.0).reshape(-1, 2).T.copy()


def line_filter() -> NDArray[np.float64]:
    """Coefficients `float64[161]` of a telephone line at 8 kHz: passes 300 to 3400 Hz, linear phase."""
    n = np.arange(_LINE_TAPS) - _LINE_TAPS // 2
    low, high = (2 * hz / 8000 * np.sinc(2 * hz / 8000 * n) for hz in LINE_HZ)
    taps: NDArray[np.float64] = (high - low) * np.hamming(_LINE_TAPS)
    return taps


class NarrowbandInput:
    """The input of the adapted acoustic model for one stream of 8 kHz audio; stateful, with 12 ms delay.

    A call over the internet may carry more than a telephone line's band; the surplus is filtered out, because the
    adaptation was fitted to that band."""

    def __init__(self) -> None:
        self._noise = Dither()
        self._line_history = np.zeros(len(_LINE) - 1)
        self._history = np.zeros(_PHASES.shape[1] - 1)

    def push(self, samples: Samples) -> Samples:
        """`int16[n]` at 8 kHz -> `int16[2 n]` at 16 kHz."""
        sound = np.concatenate((self._line_history, samples.astype(np.float64)))
        self._line_history = sound[len(samples) :]
        narrow = self._noise.push(np.convolve(sound, _LINE, "valid"))
        line = np.concatenate((self._history, narrow))
        self._history = line[len(samples) :]
        out = np.empty(2 * len(samples))
        out[0::2] = np.convolve(line, _PHASES[0], "valid")
        out[1::2] = np.convolve(line, _PHASES[1], "valid")
        return np.clip(np.rint(out), -32768, 32767).astype(np.int16)


_PHASES: Final = folding_filter()
_LINE: Final = line_filter()


@dataclass(frozen=True)
class NarrowbandAdaptation:
    """The adaptation of the model to a telephone line: `means` `float[13, 13]`, `offsets` and `variances` `float[13]`,
    and the initial cepstral mean of a call."""

    means: list[list[float]]
    offsets: list[float]
    variances: list[float]
    channel_mean: list[float]

    def mllr(self) -> str:
        """The transformation in the text format of pocketsphinx: one class, three streams."""
        lines = ["1", str(_STREAMS)]
        for stream in range(_STREAMS):
            lines.append(str(_DIMENSIONS))
            lines += [_numbers(row) for row in self.means]
            lines.append(_numbers(self.offsets if stream == 0 else [0.0] * _DIMENSIONS))
            lines.append(_numbers(self.variances))
        return "\n".join(lines) + "\n"

    def cmninit(self) -> str:
        """The initial mean in the format of pocketsphinx's setting `cmninit`."""
        return ",".join(f"{value:.2f}" for value in self.channel_mean)


def load_narrowband_adaptation() -> NarrowbandAdaptation:
    """The adaptation that is a part of this package."""
    return NarrowbandAdaptation(
        **json.loads(resources.files("models.stt.pocketsphinx").joinpath("narrowband_adaptation.json").read_text())
    )


def _numbers(values: list[float]) -> str:
    return " ".join(f"{value:.6f}" for value in values)
