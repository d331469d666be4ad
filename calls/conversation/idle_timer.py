"""User idle timer: when it expires the agent prompts the user; when it expires again the agent hangs up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calls.conversation.timers import CallLater, Timer


@dataclass(frozen=True)
class HoldChanged:
    """The call was put on hold (`held`), or was resumed. `by_client`: a client of the API holds it, perhaps besides the
    caller."""

    held: bool
    by_client: bool = False


class UserIdleTimer:
    """Calls `on_idle` after each `timeout_ms` in which neither side has spoken; 0 never. `call_later` is
    `loop.call_later`, `now_s` is `loop.time`. Time on hold does not count, because the caller cannot hear the agent."""

    def __init__(
        self,
        timeout_ms: int,
        on_idle: Callable[[], None],
        call_later: CallLater,
        now_s: Callable[[], float],
    ) -> None:
        self._timeout_s = timeout_ms / 1000
        self._on_idle = on_idle
        self._call_later = call_later
        self._now_s = now_s
        self._on_hold = False
        self._remaining_s: float | None = None  # when the timer was set last; None while a side speaks
        self._set_at_s = 0.0
        self._timer: Timer | None = None

    def set_idle(self, idle: bool) -> None:
        """Start the timer if `idle` (neither side speaks), else reset it."""
        if not idle:
            self.reset()
        elif self._remaining_s is None and self._timeout_s > 0:
            self._remaining_s = self._timeout_s
            self._start()

    def set_on_hold(self, on_hold: bool) -> None:
        """Stop the timer while the call is on hold."""
        self._on_hold = on_hold
        if on_hold:
            self._stop()
        else:
            self._start()

    def reset(self) -> None:
        """Stop the timer; the next idle time starts from 0."""
        self._stop()
        self._remaining_s = None

    def _start(self) -> None:
        if self._remaining_s is not None and self._timer is None and not self._on_hold:
            self._set_at_s = self._now_s()
            self._timer = self._call_later(self._remaining_s, self._expire)

    def _stop(self) -> None:
        if self._timer is not None and self._remaining_s is not None:
            self._timer.cancel()
            self._timer = None
            self._remaining_s -= self._now_s() - self._set_at_s

    def _expire(self) -> None:
        self._timer = self._remaining_s = None
        self._on_idle()
