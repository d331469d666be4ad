"""Request rates: a fixed window of 60 s from its first request, for each API key and each address without one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0


@dataclass(frozen=True)
class RateLimitState:
    """How a window stands after a request. `reset_s` is the wall-clock time of its end; `allowed` False: too many."""

    limit: int
    remaining: int
    reset_s: float
    allowed: bool

    def retry_after_s(self, now_s: float) -> int:
        """Whole seconds to the window's end, 1..60."""
        return min(60, max(1, math.ceil(self.reset_s - now_s)))


class RateLimiter:
    """All windows of this process. Time is an argument: seconds since 1970 that do not run backwards by much."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}

    def __len__(self) -> int:
        """Windows that are kept now."""
        return len(self._windows)

    def charge(self, who: str, limit: int, now_s: float) -> RateLimitState:
        """Count a request of `who` against `limit` requests a window."""
        self._forget_ended(now_s)
        started, count = self._windows.get(who, (now_s, 0))
        if not started <= now_s < started + WINDOW_S:
            self._windows.pop(who, None)
            started, count = now_s, 0
        self._windows[who] = (started, min(count, limit) + 1)
        return RateLimitState(limit, max(0, limit - count - 1), started + WINDOW_S, count < limit)

    def _forget_ended(self, now_s: float) -> None:
        """Windows lie in the order of their starts, so the ended ones are at the front."""
        while self._windows:
            oldest = next(iter(self._windows))
            if now_s < self._windows[oldest][0] + WINDOW_S:
                return
            del self._windows[oldest]
