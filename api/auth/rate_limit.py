"""Rate limit: a fixed window of 60 s that begins with its first request, for each API key, and for each client address
without one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0


@dataclass(frozen=True)
class RateLimitState:
    """A window's state after a request. `reset_s` is the wall-clock time of its end; `allowed` is False when the limit
    is exceeded."""

    limit: int
    remaining: int
    reset_s: float
    allowed: bool

    def retry_after_s(self, now_s: float) -> int:
        """Returns whole seconds to the window's end, 1..60."""
        return min(60, max(1, math.ceil(self.reset_s - now_s)))


class RateLimiter:
    """All windows of this process. Time is an argument: seconds since 1970, which must not run backwards by much."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}

    def __len__(self) -> int:
        """The number of windows in memory."""
        return len(self._windows)

    def charge(self, who: str, limit: int, now_s: float) -> RateLimitState:
        """Count a request of `who` against `limit` requests a window; returns the window's state."""
        self._forget_ended(now_s)
        started, count = self._windows.get(who, (now_s, 0))
        if not started <= now_s < started + WINDOW_S:
            self._windows.pop(who, None)
            started, count = now_s, 0
        self._windows[who] = (started, min(count, limit) + 1)
        return RateLimitState(limit, max(0, limit - count - 1), started + WINDOW_S, count < limit)

    def _forget_ended(self, now_s: float) -> None:
        """Windows are ordered by their starts, so the ended ones come first."""
        while self._windows:
            oldest = next(iter(self._windows))
            if now_s < self._windows[oldest][0] + WINDOW_S:
                return
            del self._windows[oldest]
