"""A caller who says nothing: the agent asks once, and hangs up when that stays unanswered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """What `loop.call_later` gives back."""

    def cancel(self) -> None:
        """Do not run it."""


class SilenceWatch:
    """Calls `fire` when nobody has spoken for `after_ms`, and again after as long; 0 never. `later` is
    `loop.call_later`. While `held()` the caller cannot hear us: that time does not count."""

    def __init__(
        self,
        after_ms: int,
        fire: Callable[[], None],
        later: Callable[[float, Callable[[], None]], Timer],
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        self._after_s = after_ms / 1000
        self._fire = fire
        self._later = later
        self._held = held
        self._timer: Timer | None = None

    def follow(self, nobody_speaks: bool) -> None:
        """How things stand now."""
        if not nobody_speaks:
            self.close()
        elif self._timer is None and self._after_s > 0:
            self._timer = self._later(self._after_s, self._over)

    def close(self) -> None:
        """Stop counting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        if self._held():
            self.follow(True)
        else:
            self._fire()
