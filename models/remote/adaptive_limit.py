"""The limit of requests that a node has under way at a server, lowered when the server refuses one for overload.

Additive increase, multiplicative decrease (Chiu and Jain 1989), by which nodes that do not know of each other come to
fair shares. Pure: time comes as an argument, in seconds of any clock that does not go back.
"""

from __future__ import annotations

from typing import Final

MIN_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0
GROWTH_S: Final = 1.0


class AdaptiveLimit:
    """A refusal halves the limit to half of the requests under way, once in `MIN_PAUSE_S`; requests that were sent
    before that say nothing new. After the server's `Retry-After` (`MIN_PAUSE_S` to `MAX_PAUSE_S`) it grows by one each
    `GROWTH_S` up to what is configured. When the only request was refused, it is 0 until then."""

    def __init__(self, configured: int) -> None:
        self.configured: Final = configured
        self._lowered = configured
        self._lowered_at_s = float("-inf")
        self._grows_from_s = float("-inf")

    def at(self, now_s: float) -> int:
        """The limit."""
        if now_s < self._grows_from_s:
            return self._lowered
        if self._lowered >= self.configured:
            return self.configured
        return min(self.configured, self._lowered + 1 + int((now_s - self._grows_from_s) / GROWTH_S))

    def pause_s(self, now_s: float) -> float:
        """Seconds until it grows again, 0 if it does."""
        return max(0.0, self._grows_from_s - now_s)

    def on_refused(self, now_s: float, in_flight: int, retry_after_s: float | None) -> bool:
        """The server has refused one of `in_flight` requests. Returns True if that lowers the limit."""
        if now_s < self._lowered_at_s + MIN_PAUSE_S:
            return False
        self._lowered = min(self.at(now_s), in_flight) // 2
        self._lowered_at_s = now_s
        self._grows_from_s = now_s + min(max(retry_after_s or 0.0, MIN_PAUSE_S), MAX_PAUSE_S)
        return True
