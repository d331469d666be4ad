"""Bursts: stretches of frames with a steady tone."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final

from media.call_progress.spectrum import FRAME_MS, HOP_MS

MAX_MISSED_FRAMES: Final = 3
"""Frames without the tone, or with another one, inside of a burst: the phase reversals of an answering modem (ITU-T
V.25)."""
EDGE_DB: Final = 6.5
"""A frame that is this much weaker than the burst lies for the most part outside of it."""
MAX_FRAMES: Final = 300
"""Frames of a burst that are examined, the first 3 s."""
_EDGE_FRAMES: Final = 3
"""Frames at either end that contain the beginning or the end of the tone."""
_LONG_FRAMES: Final = 30
_LONG_EDGE_FRAMES: Final = 10
"""The same of a burst of at least `_LONG_FRAMES`: adaptive codecs (G.722, GSM) overshoot and settle, and a jitter
buffer may drop a piece near the end."""


@dataclass(frozen=True, slots=True)
class Burst:
    """A burst from frame `first` to frame `last`: median frequency and level, and the ranges of both between its
    edges."""

    first: int
    last: int
    hz: float
    level_db: float
    range_db: float
    range_hz: float

    @property
    def start_ms(self) -> float:
        """Its beginning: the middle of its first frame."""
        return self.first * HOP_MS + FRAME_MS / 2

    @property
    def end_ms(self) -> float:
        """Its end: the middle of the frame after its last one."""
        return (self.last + 1) * HOP_MS + FRAME_MS / 2

    @property
    def ms(self) -> float:
        """Its length."""
        return self.end_ms - self.start_ms


class BurstTracker:
    """Joins frames to bursts. `tolerance_hz`: how far the frequency of a frame may be from the burst's."""

    def __init__(self, tolerance_hz: float) -> None:
        self._tolerance_hz = tolerance_hz
        self._frames: list[tuple[int, float, float]] = []  # frame, hz, level
        self._last = 0
        self._hz = 0.0

    @property
    def open_ms(self) -> int:
        """Length of the burst that has not ended; 0: there is none."""
        return (self._last + 1 - self._frames[0][0]) * HOP_MS if self._frames else 0

    def current(self) -> Burst | None:
        """The open burst as it is so far."""
        return _burst(self._frames, self._last) if self._frames else None

    def push(self, frame: int, tonal: bool, hz: float, level_db: float) -> Burst | None:
        """Take the next frame; returns the burst that ended before it."""
        if not self._frames and not tonal:
            return None
        if tonal and (not self._frames or abs(hz - self._hz) <= self._tolerance_hz):
            self._add(frame, hz, level_db)
            return None
        if frame - self._last <= MAX_MISSED_FRAMES:
            return None
        ended = self.current()
        self._frames = []
        if tonal:
            self._add(frame, hz, level_db)
        return ended

    def _add(self, frame: int, hz: float, level_db: float) -> None:
        """While the level rises, the frequency is that of the newest frame, later an average."""
        rises = not self._frames or level_db > self._frames[-1][2] + 3
        self._hz = hz if rises else self._hz + 0.3 * (hz - self._hz)
        self._last = frame
        if len(self._frames) < MAX_FRAMES:
            self._frames.append((frame, hz, level_db))


def _burst(frames: list[tuple[int, float, float]], last: int) -> Burst:
    level = statistics.median(level_db for _, _, level_db in frames)
    loud = [each for each in frames if each[2] > level - EDGE_DB]
    edge = _LONG_EDGE_FRAMES if len(loud) >= _LONG_FRAMES else _EDGE_FRAMES
    inner = loud[edge:-edge] or loud
    levels = [level_db for _, _, level_db in inner]
    hz = [hz for _, hz, _ in inner]
    end = last if len(frames) == MAX_FRAMES else loud[-1][0]
    return Burst(loud[0][0], end, statistics.median(hz), level, max(levels) - min(levels), max(hz) - min(hz))
