"""Log-mel features for Whisper's encoder, of the last 8 s of audio. The definition is that of
`WhisperFeatureExtractor(chunk_length=8)` in Hugging Face's transformers with `do_normalize=True`: mean 0 and variance 1
over the 8 s, Hann frames of 25 ms every 10 ms, 80 bands on Slaney's mel scale, log10 with 8 decades of range.

Shorter audio is padded with silence at the front, as in the training of Smart Turn. All frames of that silence are
equal: only a few of them are computed."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from media.audio_port import Samples

RATE: Final = 16000
INPUT_SAMPLES: Final = 8 * RATE
"""Samples of the input, 8 s."""
BANDS: Final = 80
FRAMES: Final = 800
_HOP: Final = 160
_WINDOW: Final = 400
_HALF_WINDOW: Final = _WINDOW // 2
_FRAMES_AT_ONCE: Final = 16
"""Frames computed at once: few enough to stay in the cache, and to keep OpenBLAS from starting its threads, which spin
for a while after each product of large matrices."""
_FULL_SCALE: Final = 32768
_VARIANCE_FLOOR: Final = 1e-7
_POWER_FLOOR: Final = 1e-10
_DECADES: Final = 8.0
_MEL_PER_HZ: Final = 3 / 200
"""Slaney's scale is linear up to 1 kHz, 15 mel, and logarithmic above: a factor of 6.4 for each 27 mel."""
_LINEAR_MAX_HZ: Final = 1000.0
_MEL_PER_LOG: Final = 27 / np.log(6.4)

Features = NDArray[np.float32]


def log_mel(sound: Samples) -> Features:
    """`int16[n]` at 16 kHz -> `float32[80, 800]`, the newest frame last. Only the last 8 s are used."""
    sound = sound[-INPUT_SAMPLES:]
    row = _normalized(sound)
    untouched = max(0, (INPUT_SAMPLES - len(sound) - _HALF_WINDOW) // _HOP + 1)
    first = max(0, min(untouched, FRAMES) - 1) // _FRAMES_AT_ONCE * _FRAMES_AT_ONCE
    frames = sliding_window_view(row, _WINDOW)[: FRAMES * _HOP : _HOP]
    features = np.empty((BANDS, FRAMES), np.float32)
    for start in range(first, FRAMES, _FRAMES_AT_ONCE):
        features[:, start : start + _FRAMES_AT_ONCE] = _bands(frames[start : start + _FRAMES_AT_ONCE]).T
    np.log10(np.maximum(features[:, first:], _POWER_FLOOR), out=features[:, first:])
    features[:, :first] = features[:, first, np.newaxis]
    np.maximum(features, features.max() - _DECADES, out=features)
    features += 4
    features /= 4
    return features


def _bands(frames: NDArray[np.float64]) -> Features:
    """`float64[n, 400]` -> the power in each band, `float32[n, 80]`."""
    spectrum = np.fft.rfft(frames * _HANN)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    bands: Features = power.astype(np.float32) @ _FILTERS
    return bands


def _normalized(sound: Samples) -> NDArray[np.float64]:
    """The 8 s that end with `sound`, padded with silence, with mean 0 and variance 1, and mirrored at both ends so that
    the first and the last frame are complete: `float64[128400]`."""
    tail = sound / _FULL_SCALE
    mean = tail.sum() / INPUT_SAMPLES
    deviation = np.sqrt(np.square(tail).sum() / INPUT_SAMPLES - mean * mean + _VARIANCE_FLOOR)
    row = np.full(INPUT_SAMPLES + 2 * _HALF_WINDOW, -mean / deviation)
    row[_HALF_WINDOW + INPUT_SAMPLES - len(sound) : _HALF_WINDOW + INPUT_SAMPLES] = (tail - mean) / deviation
    row[:_HALF_WINDOW] = row[2 * _HALF_WINDOW : _HALF_WINDOW : -1]
    row[-_HALF_WINDOW:] = row[-_HALF_WINDOW - 2 : -2 * _HALF_WINDOW - 2 : -1]
    return row


def _mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    bent = _LINEAR_MAX_HZ * _MEL_PER_HZ + np.log(np.maximum(hz, _LINEAR_MAX_HZ) / _LINEAR_MAX_HZ) * _MEL_PER_LOG
    return np.where(hz < _LINEAR_MAX_HZ, hz * _MEL_PER_HZ, bent)


def _hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    bend = _LINEAR_MAX_HZ * _MEL_PER_HZ
    return np.where(
        mel < bend, mel / _MEL_PER_HZ, _LINEAR_MAX_HZ * np.exp((np.maximum(mel, bend) - bend) / _MEL_PER_LOG)
    )


def _filters() -> Features:
    """Weights of each spectral bin in each band: triangles between the neighbours' centres, of equal area.
    `float32[201, 80]`."""
    bins = np.linspace(0, RATE / 2, _WINDOW // 2 + 1)[:, np.newaxis]
    top = _mel(np.array([RATE / 2]))[0]
    edges = _hz(np.linspace(0, top, BANDS + 2))
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    triangles = np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle))
    return (np.maximum(triangles, 0) * (2 / (high - low))).astype(np.float32)


_FILTERS: Final = _filters()
_HANN: Final = np.hanning(_WINDOW + 1)[:-1]
