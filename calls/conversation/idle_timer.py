"""The timer of a user who says nothing: the agent asks once, and hangs up when that stays unanswered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calls.conversation.timers import CallLater, Timer


@dataclass(frozen=True)
class HoldChanged:
    """The caller has put us on hold, or has resumed the call."""

    held: bool


class UserIdleTimer:
    """Calls `fire` after `after_ms` in which neither side has spoken, and again after as long; 0 never. `later` is
    `loop.call_later`, `now_s` is `loop.time`. Time on hold does not count, because the caller cannot hear us."""

    def __init__(
        self,
        after_ms: int,
        fire: Callable[[], None],
        later: CallLater,
        now_s: Callable[[], float],
    ) -> None:
        self._after_s = after_ms / 1000
        self._fire = fire
        self._later = later
        self._now_s = now_s
        self._on_hold = False
        self._left_s: float | None = None  # of the idle time when the timer was set last; None while a side speaks
        self._set_at_s = 0.0
        self._timer: Timer | None = None

    def set_idle(self, idle: bool) -> None:
        """Neither side speaks at the moment, or one does."""
        if not idle:
            self.reset()
        elif self._left_s is None and self._after_s > 0:
            self._left_s = self._after_s
            self._start()

    def set_on_hold(self, on_hold: bool) -> None:
        """The caller is on hold from now on, or no more."""
        self._on_hold = on_hold
        if on_hold:
            self._stop()
        else:
            self._start()

    def reset(self) -> None:
        """Stop; the next idle time counts from its beginning."""
        self._stop()
        self._left_s = None

    def _start(self) -> None:
        if self._left_s is not None and self._timer is None and not self._on_hold:
            self._set_at_s = self._now_s()
            self._timer = self._later(self._left_s, self._expire)

    def _stop(self) -> None:
        if self._timer is not None and self._left_s is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s -= self._now_s() - self._set_at_s

    def _expire(self) -> None:
        self._timer = self._left_s = None
        self._fire()
