"""The time of the database server as a node knows it from its heartbeats. It runs by the node's monotonic clock, so
that a step of the machine's wall clock changes nothing. Seconds are those of the monotonic clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from storage.tables.columns import EPOCH

WINDOW_S: Final = 120.0
"""How long a sample counts."""
MAX_ROUND_TRIP_S: Final = 1.0
"""A sample with a longer round trip does not count: it could be wrong by more than half a second."""
RESOLUTION_S: Final = 0.001
"""Of the database's time."""
DRIFT: Final = 100e-6
"""Upper limit of what two clocks of machines gain on each other, seconds per second."""
SLEW: Final = 0.01
"""The time runs faster or slower by this share while it is corrected, so that durations are wrong by no more."""
MAX_SLEWED_S: Final = 1.0
"""A larger error is corrected at once: the database has moved to another server, or this machine was asleep."""


@dataclass(frozen=True)
class ClockSample:
    """The database's time, read between two times of the monotonic clock."""

    before_s: float
    at: datetime
    after_s: float

    @property
    def round_trip_s(self) -> float:
        """The duration of the reading."""
        return self.after_s - self.before_s

    @property
    def offset_s(self) -> float:
        """The database's time (seconds since 1970) less that of the monotonic clock."""
        return (self.at - EPOCH).total_seconds() - (self.before_s + self.after_s) / 2

    def error_s(self, now_s: float) -> float:
        """The largest error of the offset by now."""
        return self.round_trip_s / 2 + RESOLUTION_S + DRIFT * (now_s - self.after_s)

    def contradicts(self, other: ClockSample, now_s: float) -> bool:
        """True if both cannot be right: one of the clocks has been set."""
        return abs(self.offset_s - other.offset_s) > self.error_s(now_s) + other.error_s(now_s)


@dataclass(frozen=True)
class _Correction:
    """The offset at a time, and the one that it approaches from there."""

    since_s: float
    from_s: float
    to_s: float

    def offset_s(self, now_s: float) -> float:
        limit_s = SLEW * max(0.0, now_s - self.since_s)
        return self.from_s + max(-limit_s, min(limit_s, self.to_s - self.from_s))


class ClockReference:
    """Keeps the samples of `WINDOW_S` and follows the one with the smallest error. `now` may be called by any
    thread."""

    def __init__(self) -> None:
        self._samples: deque[ClockSample] = deque()
        self._correction: _Correction | None = None

    @property
    def is_known(self) -> bool:
        """True once there was a sample that counts."""
        return self._correction is not None

    def add(self, sample: ClockSample) -> float:
        """Take a sample; returns by how many seconds the time has jumped, 0 for none."""
        if sample.round_trip_s > MAX_ROUND_TRIP_S:
            return 0.0
        now_s = sample.after_s
        if any(sample.contradicts(each, now_s) for each in self._samples):
            self._samples.clear()  # the newest one knows the clock that was set
        self._samples.append(sample)
        while self._samples[0].after_s < now_s - WINDOW_S:
            self._samples.popleft()
        best = min(self._samples, key=lambda each: each.error_s(now_s))
        before = self._correction
        begun_s = best.offset_s if before is None else before.offset_s(now_s)
        jump_s = best.offset_s - begun_s
        if abs(jump_s) <= MAX_SLEWED_S:
            jump_s = 0.0
        self._correction = _Correction(now_s, begun_s + jump_s, best.offset_s)
        return jump_s

    def now(self, now_s: float) -> datetime:
        """Returns the database's time. Requires `is_known`."""
        assert self._correction is not None
        return EPOCH + timedelta(seconds=now_s + self._correction.offset_s(now_s))
