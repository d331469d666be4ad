"""A circuit breaker: a server that fails again and again is left alone for a while, so that no caller waits for it.

Pure: time comes as an argument, in seconds of any clock that does not go back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Circuit(Enum):
    """CLOSED: all is well. OPEN: nothing is asked. HALF_OPEN: one request is on its way to find out."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True)
class BreakerBounds:
    """So many `failures` in a row open the circuit, for `open_s`; each time that the try after it fails, twice as long,
    up to `longest_s`."""

    failures: int = 3
    open_s: float = 10.0
    longest_s: float = 120.0


USUAL: Final = BreakerBounds()


class Breaker:
    """What is known of one server. Whoever was let through by `allows` says once how it went: `succeeded`, `failed`, or
    `abandoned` when nobody wanted to know any more."""

    def __init__(self, bounds: BreakerBounds = USUAL) -> None:
        self._bounds = bounds
        self._failures = 0
        self._open_until: float | None = None
        self._open_s = bounds.open_s
        self._trying = False

    def circuit(self, now_s: float) -> Circuit:
        """How it stands."""
        if self._open_until is None:
            return Circuit.CLOSED
        return Circuit.HALF_OPEN if self._trying or now_s >= self._open_until else Circuit.OPEN

    def wait_s(self, now_s: float) -> float:
        """How long nothing will be asked, 0 when the next request may find out."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - now_s)

    def allows(self, now_s: float) -> bool:
        """Whether a request may be sent; of a half-open circuit it is the only one."""
        match self.circuit(now_s):
            case Circuit.CLOSED:
                return True
            case Circuit.OPEN:
                return False
            case Circuit.HALF_OPEN:
                may, self._trying = not self._trying, True
                return may

    def succeeded(self) -> None:
        """A request was answered: all is well."""
        self._failures, self._open_until, self._trying = 0, None, False
        self._open_s = self._bounds.open_s

    def failed(self, now_s: float) -> bool:
        """A request was not answered. Returns whether that opened the circuit."""
        if self._open_until is None:
            self._failures += 1
            if self._failures < self._bounds.failures:
                return False
        elif self._trying:
            self._open_s = min(2 * self._open_s, self._bounds.longest_s)
        else:  # it was sent before the circuit opened
            return False
        self._open_until, self._trying = now_s + self._open_s, False
        return True

    def abandoned(self) -> None:
        """A request was given up: the next one may find out."""
        self._trying = False
