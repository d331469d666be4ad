"""Rate limiting by fixed windows of 60 s: one for each API key, and for each client address that sends no valid key. A
window begins with its first request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0


@dataclass(frozen=True)
class RateLimitState:
    """The state of a window after a request. `reset_s` is the end of the window, in seconds since 1970; `allowed` is
    False if the request exceeds the limit."""

    limit: int
    remaining: int
    reset_s: float
    allowed: bool

    def retry_after_s(self, now_s: float) -> int:
        """Returns the seconds to the end of the window, rounded up, 1 to 60."""
        return min(60, max(1, math.ceil(self.reset_s - now_s)))


class RateLimiter:
    """The windows of this process, by client. Time is an argument: seconds since 1970, which must not run backwards by
    much."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}

    def __len__(self) -> int:
        """The number of windows in memory."""
        return len(self._windows)

    def charge(self, client: str, limit: int, now_s: float) -> RateLimitState:
        """Count a request of `client` against `limit` requests a window; returns the state of its window."""
        self._remove_ended(now_s)
        started, count = self._windows.get(client, (now_s, 0))
        if not started <= now_s < started + WINDOW_S:
            self._windows.pop(client, None)
            started, count = now_s, 0
        self._windows[client] = (started, min(count, limit) + 1)
        return RateLimitState(limit, max(0, limit - count - 1), started + WINDOW_S, count < limit)

    def _remove_ended(self, now_s: float) -> None:
        """Windows are ordered by their starts, so the ended ones come first."""
        while self._windows:
            oldest = next(iter(self._windows))
            if now_s < self._windows[oldest][0] + WINDOW_S:
                return
            del self._windows[oldest]
