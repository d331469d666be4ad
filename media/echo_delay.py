"""How much of what is heard was said a moment ago, and how long ago: a normalized cross-correlation over all delays.

Voiced speech resembles any other voiced speech, so both sides are whitened first, by linear prediction from what was
said and by a plain difference; the geometric mean of the two correlations is high only where both agree. Over 128 ms an
echo reaches 0.41 to 0.87 (98 of 100 windows; -10 to -30 dB, G.711, rooms of 0.25 to 0.5 s, a distorting loudspeaker),
another voice stays under 0.30 and the same synthetic voice with other words under 0.54.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.ports import Samples

LOOK_MS: Final = 128
"""Sound that is compared: the newest so many ms of what was heard."""
LEAST_MS: Final = 20
"""No echo is back sooner than a tick."""
MOST_MS: Final = 600
"""Nor later than this: network there and back, two jitter buffers and a mobile network."""
_ORDER: Final = 10
_NARROW: Final = 8000
"""Correlated at this rate: telephone speech has nothing above it that would tell more."""
MOST_NOISE: Final = 0.6
"""No more than this share of the sound is taken for noise."""
_QUIET: Final = 1e-3
"""Energy under this share of the loudest stretch counts as this much: a correlation with near silence says nothing."""

Signal = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Likeness:
    """The best match: `share` is the correlation, 0..1, `lag_ms` how long ago that was said."""

    share: float
    lag_ms: float


def likeness(said: Samples, heard: Samples, rate: int, noise: float = 0.0) -> Likeness:
    """Compare `heard` (`int16[LOOK_MS]`) with `said` (`int16[MOST_MS + LOOK_MS]`, ending at the same moment). `noise`
    is the mean square of the line's noise, which has no likeness with anything and is left out of account."""
    step = rate // _NARROW
    x, y = _narrowed(said, step), _narrowed(heard, step)
    if not x.any() or not y.any():
        return Likeness(0.0, 0.0)
    prediction = _prediction(x)
    predicted = _correlation(x, y, prediction, noise / step)
    plain = _correlation(x, y, np.array([1.0, -1.0]), noise / step)
    both = np.sqrt(np.maximum(predicted * plain, 0.0))[: 1 - LEAST_MS * _NARROW // 1000]
    best = int(both.argmax())
    return Likeness(float(both[best]), (len(x) - len(y) - best) * 1000 / _NARROW)


def _narrowed(samples: Samples, step: int) -> Signal:
    whole = samples.astype(np.float64)
    return whole if step == 1 else whole.reshape(-1, step).mean(axis=1)


def _prediction(x: Signal) -> Signal:
    """The whitening filter of linear prediction, autocorrelation method (J. Makhoul, Proc. IEEE 63(4), 1975)."""
    windowed = x * np.hanning(len(x))
    r = np.array([windowed[: len(x) - k] @ windowed[k:] for k in range(_ORDER + 1)])
    r[0] = r[0] * 1.001 + 1.0
    matrix = r[np.abs(np.subtract.outer(np.arange(_ORDER), np.arange(_ORDER)))]
    return np.concatenate([[1.0], -np.linalg.solve(matrix, r[1:])])


def _correlation(x: Signal, y: Signal, whitening: Signal, noise: float) -> Signal:
    """Of `y` with every stretch of `x` of its length, both whitened, -1..1; the last is the one without delay."""
    x, y = np.convolve(x, whitening)[: len(x)], np.convolve(y, whitening)[: len(y)]
    loud = y @ y
    loud -= min(noise * len(y) * (whitening @ whitening), MOST_NOISE * loud)
    size = 1 << (len(x) + len(y) - 1).bit_length()
    product = np.fft.irfft(np.fft.rfft(x, size) * np.conj(np.fft.rfft(y, size)), size)[: len(x) - len(y) + 1]
    passed = np.concatenate([[0.0], np.cumsum(x * x)])
    energy = passed[len(y) :] - passed[: -len(y)]
    correlation: Signal = product / np.sqrt((energy + energy.max() * _QUIET) * loud + 1.0)
    return correlation
