"""Level measurement of every caller against the caller's own noise floor: where sound begins, and how long it has been
quiet.

Blocks of 5 ms of all calls are measured at once. Levels are dBFS (0 is a full-scale square wave)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_history import Rows
from media.audio_port import Samples

BLOCK_MS: Final = 5
BLOCKS_PER_FRAME: Final = 4
"""Blocks in a frame of 20 ms, which is measured at a time."""

SILENCE_DB: Final = -60.0
"""Below this level everything is silence (the idle noise of G.711 lies about 10 dB lower)."""
GATE_DB: Final = 8.0
"""Minimum level above the noise floor at which the voice activity model is run."""
QUIET_ABOVE_FLOOR_DB: Final = 8.0
"""Quiet reaches up to this level above the noise floor,"""
QUIET_FAR_DB: Final = 32.0
"""but at least up to this far below the level of the speech;"""
QUIET_NEAR_DB: Final = 24.0
"""if the noise is less than this below the speech, quiet cannot be distinguished from speech."""
FLOOR_FRAMES: Final = 38
"""The noise floor is the lowest block of the last one to two periods of this many frames (0.76 to 1.52 s): speech has
gaps in that time, noise has not (minimum statistics, R. Martin, IEEE Trans. SAP 9(5), 2001)."""
LOUD_DB: Final = 15.0
"""A frame is as loud as speech if it is at most this far below its level."""
_LEVEL_FALL_DB: Final = 0.24
"""Per 20 ms: 12 dB/s. The level of speech follows a peak at once and decays slowly."""
_LEAST_SPEECH_DB: Final = -50.0
_NEW_SOUND_MS: Final = 100.0
"""Time under the gate after which sound is a new onset."""
_LONG_AGO_MS: Final = 1e9

Decibels = NDArray[np.float32]
Milliseconds = NDArray[np.float64]


def block_levels(frames: Samples) -> Decibels:
    """`int16[n, samples]` -> dBFS `float32[n, BLOCKS_PER_FRAME]`."""
    blocks = frames.reshape(len(frames), BLOCKS_PER_FRAME, -1).astype(np.float32)
    power = np.einsum("nbs,nbs->nb", blocks, blocks) / (blocks.shape[2] * 32768.0**2)
    level: Decibels = 10.0 * np.log10(power + 1e-12)
    return level


class LevelMeter:
    """The level measurements of all rows. All arrays have one entry per row, which refers to the row's last measured
    sample."""

    def __init__(self, rows: int) -> None:
        self._minima: Decibels = np.zeros((2, rows), np.float32)  # of the period before and of this one
        self._frames = np.zeros(rows, np.int32)  # in this period
        self.speech: Decibels = np.zeros(rows, np.float32)
        self.quiet_ms: Milliseconds = np.zeros(rows)
        """Time for which the audio has been far below the level of speech; 0 where noise hides that."""
        self.below_gate_ms: Milliseconds = np.zeros(rows)
        """Time for which the audio has been below the gate of the voice activity model."""
        self.onset_ms: Milliseconds = np.zeros(rows)
        """Time since the onset of the sound that stands out of the noise."""
        self.loud = np.zeros(rows, np.bool_)
        """The last frame was as loud as speech, and well above the noise."""

    def open(self, row: int) -> None:
        """Begin a call in a row: its first frame initializes the noise floor."""
        self._minima[:, row] = 0.0
        self._frames[row] = 0
        self.speech[row] = -40.0
        self.quiet_ms[row] = self.below_gate_ms[row] = self.onset_ms[row] = _LONG_AGO_MS
        self.loud[row] = False

    def measure(self, rows: Rows, frames: Samples) -> None:
        """Measure one frame of 20 ms of each of `rows`: `int16[len(rows), samples]`."""
        level = block_levels(frames)
        floor = self._update_floor(rows, level.min(axis=1))
        faded = np.maximum(self.speech[rows] - _LEVEL_FALL_DB, _LEAST_SPEECH_DB)
        self.speech[rows] = speech = np.maximum(level.max(axis=1), faded)
        self._update_quiet(rows, level, floor, speech)
        self._update_gate(rows, level, np.maximum(floor + GATE_DB, SILENCE_DB))

    def noise_power(self, row: int) -> float:
        """Mean square of the row's noise. The floor is about 3 dB below the mean of noise blocks of 5 ms."""
        floor = float(self._minima[:, row].min()) + 3.0
        return float(10 ** (floor / 10) * 32768**2)

    def _update_floor(self, rows: Rows, low: Decibels) -> Decibels:
        count = self._frames[rows] + 1
        period_over = count >= FLOOR_FRAMES
        before, now = self._minima[0, rows], np.minimum(self._minima[1, rows], low)
        floor: Decibels = np.minimum(before, now)
        self._minima[0, rows] = np.where(period_over, now, before)
        self._minima[1, rows] = np.where(period_over, low, now)
        self._frames[rows] = np.where(period_over, 0, count)
        return floor

    def _update_quiet(self, rows: Rows, level: Decibels, floor: Decibels, speech: Decibels) -> None:
        above_noise = floor + QUIET_ABOVE_FLOOR_DB
        limit = np.maximum(above_noise, speech - QUIET_FAR_DB)
        hidden = above_noise > speech - QUIET_NEAR_DB
        self.loud[rows] = ~hidden & (level.max(axis=1) > np.maximum(speech - LOUD_DB, above_noise))
        loud = level > np.maximum(limit, SILENCE_DB)[:, np.newaxis]
        self.quiet_ms[rows] = np.where(hidden, 0.0, _trailing_quiet_ms(self.quiet_ms[rows], loud))

    def _update_gate(self, rows: Rows, level: Decibels, gate: Decibels) -> None:
        loud = level > gate[:, np.newaxis]
        below_gate = self.below_gate_ms[rows]
        first = loud.argmax(axis=1)
        new = loud.any(axis=1) & (below_gate + first * BLOCK_MS >= _NEW_SOUND_MS)
        since = (BLOCKS_PER_FRAME - first) * float(BLOCK_MS)
        self.onset_ms[rows] = np.where(new, since, self.onset_ms[rows] + BLOCKS_PER_FRAME * BLOCK_MS)
        self.below_gate_ms[rows] = _trailing_quiet_ms(below_gate, loud)


def _trailing_quiet_ms(before: Milliseconds, loud: NDArray[np.bool_]) -> Milliseconds:
    """Time since the last loud block, ms, after BLOCKS_PER_FRAME more blocks."""
    after = loud[:, ::-1].argmax(axis=1) * float(BLOCK_MS)
    return np.where(loud.any(axis=1), after, before + BLOCKS_PER_FRAME * BLOCK_MS)
