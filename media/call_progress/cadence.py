"""Cadence rules: which tone a sequence of bursts is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from media.call_progress.bursts import Burst
from media.call_progress.spectrum import HOP_MS
from media.call_progress.tones import ToneKind

BEEP_HZ: Final = (390.0, 2210.0)
"""400 to 2200 Hz, with the error of the measurement, as all limits here."""
BEEP_MS: Final = (110.0, 1530.0)
"""120 ms to 1.5 s."""
MAX_RANGE_DB: Final = 2.5
MAX_RANGE_HZ: Final = 5.0
"""Maximum ranges of level and frequency within a beep: notes of instruments fade, vowels glide. (In white noise 10 dB
below a tone they are 1.2 dB and 3.6 Hz.)"""
QUIET_DB: Final = 8.0
"""Quiet after a beep is at least this far below it."""
BEEP_QUIET_MS: Final = 200.0
"""Quiet that makes a tone a beep: the notes of a melody follow each other faster, and so do the sounds of speech."""
DECAY_MS: Final = 60.0
"""Time after a burst in which it may fade."""
MAX_BEAT_RANGE_DB: Final = 9.0
"""The same for ringback and busy: two tones 40 Hz apart beat."""
RING_HZ: Final = (385.0, 490.0)
BUSY_HZ: Final = (385.0, 640.0)
RING_MS: Final = (750.0, 2400.0)
"""Ringback is on for 0.8 to 2 s in most countries,"""
DOUBLE_RING_MS: Final = (330.0, 470.0)
DOUBLE_RING_GAP_MS: Final = (130.0, 270.0)
"""or twice for 0.4 s with 0.2 s between (United Kingdom, Australia)."""
RING_QUIET_MS: Final = 700.0
"""Quiet after a ring; the gaps of busy tones are shorter."""
MAX_LOUD_FRAMES: Final = 3
"""Frames that may be loud in it."""
BUSY_MS: Final = (150.0, 800.0)
BUSY_BURSTS: Final = 3
SAME_MS: Final = 50.0
"""Maximum difference of equal times."""
SIT_HZ: Final = ((880.0, 1020.0), (1340.0, 1460.0), (1730.0, 1870.0))
SIT_MS: Final = (200.0, 450.0)
SIT_GAP_MS: Final = 90.0
CNG_HZ: Final = (1062.0, 1138.0)
CNG_MS: Final = (420.0, 580.0)
CNG_GAP_MS: Final = (2500.0, 3500.0)
CED_HZ: Final = (2075.0, 2125.0)
CED_MS: Final = 1600.0
"""2100 Hz that lasts this long is no beep."""

Match = tuple[ToneKind, float, Burst]
"""A kind, the beginning (ms) and the last burst of a tone."""


def _within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


class SingleToneCadence:
    """Special information tones, beeps and fax tones, from bursts of one frequency."""

    def __init__(self) -> None:
        self._recent: deque[Burst] = deque(maxlen=3)
        self._candidate: Burst | None = None
        self._ced_reported = False

    def on_burst(self, burst: Burst) -> Iterator[Match]:
        """Take a burst that has ended."""
        self._ced_reported = False
        self._recent.append(burst)
        if self._is_sit():
            first, _, last = self._recent
            self._recent.clear()
            self._candidate = None
            yield ToneKind.SIT, first.start_ms, last
        elif self._is_second_cng(burst):
            yield ToneKind.CNG, self._recent[-2].start_ms, burst
            self._candidate = None
        elif _is_beep(burst) and not self._is_second_ring(burst):
            self._candidate = burst

    def on_open_burst(self, burst: Burst) -> Iterator[Match]:
        """Look at a burst that has not ended."""
        if not self._ced_reported and _within(burst.hz, CED_HZ) and burst.ms >= CED_MS:
            self._ced_reported = True
            yield ToneKind.CED, burst.start_ms, burst

    def on_frame(self, frame: int, tonal: bool, level_db: float) -> Iterator[Match]:
        """Look at each frame: is it quiet after a possible beep?"""
        beep = self._candidate
        if beep is None or (frame - beep.last) * HOP_MS <= DECAY_MS:
            return
        if tonal or level_db > beep.level_db - QUIET_DB:
            self._candidate = None
        elif (frame - beep.last) * HOP_MS >= _quiet_after_ms(beep):
            self._candidate = None
            yield ToneKind.BEEP, beep.start_ms, beep

    def _is_sit(self) -> bool:
        tones = list(self._recent)
        return (
            len(tones) == len(SIT_HZ)
            and all(_within(tone.hz, hz) and _within(tone.ms, SIT_MS) for tone, hz in zip(tones, SIT_HZ, strict=True))
            and all(after.start_ms - before.end_ms <= SIT_GAP_MS for before, after in pairwise(tones))
        )

    def _is_second_ring(self, burst: Burst) -> bool:
        """Ringback of several countries has two bursts, which may be as short as a beep's."""
        if len(self._recent) < 2 or not _within(burst.hz, RING_HZ):
            return False
        before = self._recent[-2]
        return _within(before.hz, RING_HZ) and burst.start_ms - before.end_ms <= RING_QUIET_MS

    def _is_second_cng(self, burst: Burst) -> bool:
        if len(self._recent) < 2 or not _is_cng(burst):
            return False
        before = self._recent[-2]
        return _is_cng(before) and _within(burst.start_ms - before.end_ms, CNG_GAP_MS)


class CallProgressCadence:
    """Ringback and busy tones, from bursts in their band."""

    def __init__(self) -> None:
        self._recent: deque[Burst] = deque(maxlen=BUSY_BURSTS)
        self._candidate: tuple[Burst, Burst] | None = None
        self._loud_frames = 0

    def on_burst(self, burst: Burst) -> Iterator[Match]:
        """Take a burst that has ended."""
        self._candidate = None
        if not _within(burst.hz, BUSY_HZ) or burst.range_db > MAX_BEAT_RANGE_DB:
            return
        self._recent.append(burst)
        if self._is_busy():
            first = self._recent[0]
            self._recent.clear()
            yield ToneKind.BUSY, first.start_ms, burst
        elif ring := self._ring():
            self._candidate, self._loud_frames = (ring, burst), 0

    def on_frame(self, frame: int, level_db: float) -> Iterator[Match]:
        """Look at each frame: is it quiet after a ring?"""
        if self._candidate is None:
            return
        first, last = self._candidate
        after_ms = (frame - last.last) * HOP_MS
        self._loud_frames += after_ms > DECAY_MS and level_db > last.level_db - QUIET_DB
        if self._loud_frames > MAX_LOUD_FRAMES:
            self._candidate = None
        elif after_ms >= RING_QUIET_MS:
            self._candidate = None
            yield ToneKind.RINGBACK, first.start_ms, last

    def _ring(self) -> Burst | None:
        """The first burst of the ring that has just ended, None if it was none."""
        last = self._recent[-1]
        if not _within(last.hz, RING_HZ):
            return None
        if _within(last.ms, RING_MS):
            return last
        if len(self._recent) < 2 or not _within(last.ms, DOUBLE_RING_MS):
            return None
        before = self._recent[-2]
        is_double = _within(before.ms, DOUBLE_RING_MS) and _within(last.start_ms - before.end_ms, DOUBLE_RING_GAP_MS)
        return before if is_double else None

    def _is_busy(self) -> bool:
        tones = list(self._recent)
        if len(tones) < BUSY_BURSTS:
            return False
        gaps = [after.start_ms - before.end_ms for before, after in pairwise(tones)]
        return all(_within(tone.ms, BUSY_MS) and abs(tone.ms - tones[0].ms) <= SAME_MS for tone in tones) and all(
            _within(gap, BUSY_MS) and abs(gap - gaps[0]) <= SAME_MS for gap in gaps
        )


def _is_cng(burst: Burst) -> bool:
    return _within(burst.hz, CNG_HZ) and _within(burst.ms, CNG_MS)


def _is_beep(burst: Burst) -> bool:
    is_ring = _within(burst.hz, RING_HZ) and burst.ms >= RING_MS[0]
    in_limits = _within(burst.hz, BEEP_HZ) and _within(burst.ms, BEEP_MS)
    is_steady = burst.range_db <= MAX_RANGE_DB and burst.range_hz <= MAX_RANGE_HZ
    return in_limits and is_steady and not is_ring


def _quiet_after_ms(beep: Burst) -> float:
    """Time until no other tone can follow of which the burst would be a part."""
    if _is_cng(beep):
        return CNG_GAP_MS[1] + BEEP_QUIET_MS
    if _within(beep.hz, RING_HZ) and beep.ms >= BUSY_MS[0]:
        return RING_QUIET_MS
    return BEEP_QUIET_MS
