"""Spectral analysis for tone detection: level, strongest frequency and purity of short frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples

FRAME_MS: Final = 32
"""Length of a frame, weighted by a Hann window: frequencies are 31.25 Hz apart and interpolated between."""
HOP_MS: Final = 10
"""Distance of two frames."""
SILENCE_DB: Final = -50.0
"""Frames under this level (dB of a full-scale square wave) contain no tone."""
MIN_TONE_SHARE: Final = 0.82
"""Minimum share of a tone in the power of a frame: white noise 8 dB below it is allowed, an overtone 6 dB below it is
not."""
MIN_PEAK_SHARE: Final = 0.2
"""Minimum share of the strongest frequency in the power of a frame of music; of noise it is 0.15 at most."""
MIN_BAND_SHARE: Final = 0.8
"""The same for the band of ringback and busy tones, which consist of one or two tones."""
_TOTAL_FROM_HZ: Final = 94
"""Mains hum and the offset of a converter below this frequency do not count."""
_PEAK_HZ: Final = (375, 2280)
_BAND_HZ: Final = (375, 688)
_LOBE: Final = 2
"""Width of a Hann window's main lobe to either side, in frequencies of the spectrum."""

Values = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Frames:
    """Consecutive frames, one value each: `level_db`; the strongest frequency `hz`; whether they are nearly nothing but
    this tone (`tonal`), or have it stand out as in music (`peaked`); whether they are nearly nothing but the band of
    ringback and busy tones (`in_band`), with its centre `band_hz`."""

    level_db: list[float]
    hz: list[float]
    tonal: list[bool]
    peaked: list[bool]
    in_band: list[bool]
    band_hz: list[float]


class SpectrumAnalyzer:
    """The analysis at one sample rate, 8000 or 16000 Hz. `length` and `hop` are in samples."""

    def __init__(self, rate: int) -> None:
        self.length = FRAME_MS * rate // 1000
        self.hop = HOP_MS * rate // 1000
        weights = np.hanning(self.length + 1)[:-1]
        self._window = (weights / np.sqrt((weights**2).sum() * self.length) / 32768).astype(np.float32)
        self._hz_per_bin = rate / self.length

    def analyze(self, samples: Samples, count: int) -> Frames:
        """The first `count` frames of `samples`, `int16[(count - 1) * hop + length]`."""
        if 20 * np.log10(max(int(samples.max()), -int(samples.min()), 1) / 32768) < SILENCE_DB:
            return self._silence(count)
        starts = np.arange(count)[:, np.newaxis] * self.hop + np.arange(self.length)
        spectrum = np.fft.rfft(samples[starts] * self._window)
        power = spectrum.real**2 + spectrum.imag**2
        power[:, 1:-1] *= 2
        total = power[:, self._bin(_TOTAL_FROM_HZ) :].sum(axis=1) + 1e-12
        level = 10 * np.log10(total)
        loud = level > SILENCE_DB
        hz, tone = self._strongest(power)
        band = power[:, self._bin(_BAND_HZ[0]) : self._bin(_BAND_HZ[1]) + 1]
        in_band = band.sum(axis=1)
        bins = np.arange(band.shape[1]) + self._bin(_BAND_HZ[0])
        band_hz = (band * bins).sum(axis=1) / (in_band + 1e-12) * self._hz_per_bin
        return Frames(
            level.tolist(),
            hz.tolist(),
            (loud & (tone > MIN_TONE_SHARE * total)).tolist(),
            (loud & (tone > MIN_PEAK_SHARE * total)).tolist(),
            (loud & (in_band > MIN_BAND_SHARE * total)).tolist(),
            band_hz.tolist(),
        )

    def _strongest(self, power: Values) -> tuple[Values, Values]:
        """The strongest frequency, interpolated by a parabola through the logarithms (J. O. Smith, Spectral Audio
        Signal Processing, 2011), and the power of its main lobe."""
        first = self._bin(_PEAK_HZ[0])
        peak = power[:, first : self._bin(_PEAK_HZ[1]) + 1].argmax(axis=1) + first
        around = np.take_along_axis(power, peak[:, np.newaxis] + np.arange(-_LOBE, _LOBE + 1), axis=1)
        before, middle, after = np.log(around[:, _LOBE - 1 : _LOBE + 2] + 1e-15).T
        curvature = before - 2 * middle + after
        offset = np.where(curvature < -1e-6, 0.5 * (before - after) / np.minimum(curvature, -1e-6), 0.0)
        return (peak + np.clip(offset, -0.5, 0.5)) * self._hz_per_bin, around.sum(axis=1)

    def _bin(self, hz: float) -> int:
        return round(hz / self._hz_per_bin)

    @staticmethod
    def _silence(count: int) -> Frames:
        zeros, no = [0.0] * count, [False] * count
        return Frames([-120.0] * count, zeros, no, no, no, zeros)
