"""Loudness of hold music: at the level of speech on a telephone, steady, and without high peaks.

Music that is louder than the agent startles, softer music is taken for a broken line, and music that swells and fades
makes voice activity detectors and comfort noise on the way switch."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from media.background.files import InvalidSound
from media.background.loop_synthesis import SAMPLE_RATE

LEVEL_DBFS: Final = -22.0
"""Active level of hold music, RMS in dB below full scale: that of speech."""
MAX_GAIN_DB: Final = 12.0
"""Amplification of soft music, at most: more would bring out its noise."""
PEAK: Final = 0.45
"""Peak limit as a share of full scale (-7 dBFS)."""

_GATE_BLOCK: Final = SAMPLE_RATE * 2 // 5
_ABSOLUTE_GATE_DBFS: Final = -70.0
_RELATIVE_GATE_DB: Final = -10.0
_EVENING_S: Final = 2.0
_EVENING_SHARE: Final = 0.7
"""Share of the deviations from the mean loudness, in dB, that `even_out` removes."""
_LIMITER_BLOCK: Final = SAMPLE_RATE // 1000
_LOOK_AHEAD: Final = 12
"""Blocks before and after a peak in which the gain falls and rises."""


def active_level_dbfs(sound: NDArray[np.floating]) -> float:
    """The RMS level of a sound (full scale 1) without its pauses, dB; minus infinity for silence. Gating by ITU-R
    BS.1770: blocks of 400 ms count if they are above an absolute threshold and less than 10 dB below the mean of
    these."""
    blocks = np.array_split(sound, max(1, len(sound) // _GATE_BLOCK))
    powers = np.array([np.mean(np.square(block, dtype=np.float64)) for block in blocks])
    loud = powers[powers > 10 ** (_ABSOLUTE_GATE_DBFS / 10)]
    if len(loud) == 0:
        return float("-inf")
    active = loud[loud > loud.mean() * 10 ** (_RELATIVE_GATE_DB / 10)]
    return float(10 * np.log10(active.mean()))


def match_loudness(samples: Samples) -> Samples:
    """Music at LEVEL_DBFS, amplified by MAX_GAIN_DB at most, with its peaks limited. Raises `InvalidSound` for
    silence."""
    sound = samples.astype(np.float32) / np.float32(32768)
    level = active_level_dbfs(sound)
    if level == float("-inf"):
        raise InvalidSound("The file holds only silence")
    sound *= np.float32(10 ** (min(LEVEL_DBFS - level, MAX_GAIN_DB) / 20))
    return limit_peaks(sound)


def even_out(loop: NDArray[np.float64]) -> NDArray[np.float64]:
    """A loop at LEVEL_DBFS, with most of its slow changes of loudness removed."""
    frequencies = np.arange(len(loop) // 2 + 1) * (SAMPLE_RATE / len(loop))
    smoothing = np.exp(-0.5 * (2 * np.pi * frequencies * _EVENING_S / 3) ** 2)
    power = np.maximum(np.fft.irfft(np.fft.rfft(loop**2) * smoothing, len(loop)), 1e-12)
    evened = loop * (np.mean(power) / power) ** (_EVENING_SHARE / 2)
    scaled: NDArray[np.float64] = evened * (10 ** (LEVEL_DBFS / 20) / np.sqrt(np.mean(evened**2)))
    return scaled


def limit_peaks(sound: NDArray[np.floating]) -> Samples:
    """A sound (full scale 1) as int16, with no sample above PEAK: the gain falls smoothly before a peak and rises after
    it, circularly. Raises `InvalidSound` if the sound is empty."""
    if len(sound) == 0:
        raise InvalidSound("The file holds no sound")
    count = -(-len(sound) // _LIMITER_BLOCK)
    blocks = np.zeros((count, _LIMITER_BLOCK), sound.dtype)
    blocks.reshape(-1)[: len(sound)] = sound
    needed = np.minimum(1, PEAK / np.maximum(np.maximum(blocks.max(axis=1), -blocks.min(axis=1)), 1e-9))
    # A window less wide is averaged than is searched, so that both ends of a block's gain are below what it needs.
    lowest = _circular_windows(needed, _LOOK_AHEAD).min(axis=1)
    gain = _circular_windows(lowest, _LOOK_AHEAD - 1).mean(axis=1).astype(sound.dtype)
    ramp = np.linspace(0, 1, _LIMITER_BLOCK, endpoint=False, dtype=sound.dtype)
    blocks *= gain[:, None] + (np.roll(gain, -1) - gain)[:, None] * ramp
    blocks *= 32768
    limited: Samples = np.rint(blocks, out=blocks).astype(np.int16).reshape(-1)[: len(sound)]
    return limited


def _circular_windows(values: NDArray[np.floating], reach: int) -> NDArray[np.floating]:
    """For each value the window of it and of `reach` neighbours on either side, around the loop."""
    wrapped = np.pad(values, reach, mode="wrap")
    return np.lib.stride_tricks.sliding_window_view(wrapped, 2 * reach + 1)
