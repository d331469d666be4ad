"""A caller who says nothing: the agent asks once, and hangs up when that stays unanswered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calls.conversation.timers import CallLater, Timer


@dataclass(frozen=True)
class HoldChanged:
    """The caller has put us on hold, or has come back."""

    held: bool


class UserIdleTimer:
    """Calls `fire` when nobody has spoken for `after_ms`, and again after as long; 0 never. `later` is
    `loop.call_later`, `now_s` is `loop.time`. On hold the caller cannot hear us: that time does not count."""

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
        self._held = False
        self._left_s: float | None = None  # of the silence, when the timer was set last; None while somebody speaks
        self._since_s = 0.0  # when that was
        self._timer: Timer | None = None

    def set_idle(self, nobody_speaks: bool) -> None:
        """How things stand now."""
        if not nobody_speaks:
            self.reset()
        elif self._left_s is None and self._after_s > 0:
            self._left_s = self._after_s
            self._go_on()

    def set_on_hold(self, held: bool) -> None:
        """The caller is on hold from now on, or no more."""
        self._held = held
        if held:
            self._stop()
        else:
            self._go_on()

    def reset(self) -> None:
        """Stop counting; the next silence counts from its beginning."""
        self._stop()
        self._left_s = None

    def _go_on(self) -> None:
        if self._left_s is not None and self._timer is None and not self._held:
            self._since_s = self._now_s()
            self._timer = self._later(self._left_s, self._over)

    def _stop(self) -> None:
        if self._timer is not None and self._left_s is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s -= self._now_s() - self._since_s

    def _over(self) -> None:
        self._timer = self._left_s = None
        self._fire()
