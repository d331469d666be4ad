"""Trims the silence that synthesizers put around a sentence: before it, it is latency for the caller."""

from __future__ import annotations

from typing import Final

import numpy as np

from media.audio_port import Samples

_BLOCK_MS: Final = 5
_LEAD_MS: Final = 5
_TAIL_MS: Final = 150
"""Silence kept before the first sound and after the last; the tail is the pause between two sentences."""
_SILENCE_SHARE: Final = 0.01
"""A block whose peak is below this share of the loudest peak is silence."""


def trim_silence(samples: Samples, rate: int) -> slice:
    """The part of `int16[n]` at `rate` Hz that contains the speech, with a short lead and tail; empty for silence."""
    block = rate * _BLOCK_MS // 1000
    count = len(samples) // block
    if not count:
        return slice(0, 0)
    peaks = np.abs(samples[: count * block].astype(np.int32)).reshape(count, block).max(axis=1)
    loud = np.flatnonzero(peaks > max(1.0, peaks.max() * _SILENCE_SHARE))
    if not len(loud):
        return slice(0, 0)
    first = int(loud[0]) * block - rate * _LEAD_MS // 1000
    last = (int(loud[-1]) + 1) * block + rate * _TAIL_MS // 1000
    return slice(max(0, first), min(len(samples), last))
