"""Digits that a caller dials, gathered to one entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

GATHER_S: Final = 2.0
"""An entry is complete this long after its last digit; `#` completes it at once."""

LONGEST: Final = 64
"""An entry is complete when it has that many digits: no number that people dial is longer."""


@dataclass(frozen=True)
class DigitsDialled:
    """A complete entry, without the `#` that ended it."""

    digits: str


class Timer(Protocol):
    """What `loop.call_later` gives back."""

    def cancel(self) -> None:
        """Do not run it."""


class DigitEntry:
    """Gathers digits and hands each complete entry to `sink`. `later` is `loop.call_later`."""

    def __init__(
        self, sink: Callable[[DigitsDialled], None], later: Callable[[float, Callable[[], None]], Timer]
    ) -> None:
        self._sink = sink
        self._later = later
        self._digits = ""
        self._timer: Timer | None = None

    def press(self, digit: str) -> None:
        """The next key: 0-9, *, #, A-D."""
        self._stop_timer()
        if digit == "#":
            self._complete()
            return
        self._digits += digit
        if len(self._digits) == LONGEST:
            self._complete()
            return
        self._timer = self._later(GATHER_S, self._complete)

    def close(self) -> None:
        """Forget what is incomplete."""
        self._stop_timer()
        self._digits = ""

    def _complete(self) -> None:
        digits, self._digits = self._digits, ""
        if digits:
            self._sink(DigitsDialled(digits))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
