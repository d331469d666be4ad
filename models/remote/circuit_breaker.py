"""A circuit breaker: a server that fails again and again gets no requests for a while, so that no caller waits for it.

Pure: time comes as an argument, in seconds of any clock that does not go back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class CircuitState(Enum):
    """CLOSED: all is well. OPEN: nothing is asked. HALF_OPEN: one request is on its way to find out."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, eq=False)
class Permit:
    """One request may be sent. `openings`: how often the circuit had opened before."""

    openings: int


@dataclass(frozen=True)
class CircuitBreakerSettings:
    """So many `failures` in a row open the circuit, for `open_s`; each time that the try after it fails, twice as long,
    up to `longest_s`."""

    failures: int = 3
    open_s: float = 10.0
    longest_s: float = 120.0


DEFAULT_SETTINGS: Final = CircuitBreakerSettings()


class CircuitBreaker:
    """The circuit of one server. The holder of a permit from `acquire` reports once how its request went: `on_success`,
    `on_failure`, or `on_abandoned` when it was cancelled. A half-open circuit counts its one trial request alone, and
    none from before it opened."""

    def __init__(self, bounds: CircuitBreakerSettings = DEFAULT_SETTINGS) -> None:
        self._bounds = bounds
        self._failures = 0
        self._open_until: float | None = None
        self._open_s = bounds.open_s
        self._openings = 0
        self._trial: Permit | None = None

    def state(self, now_s: float) -> CircuitState:
        """How it stands."""
        if self._open_until is None:
            return CircuitState.CLOSED
        return CircuitState.HALF_OPEN if self._trial or now_s >= self._open_until else CircuitState.OPEN

    def wait_s(self, now_s: float) -> float:
        """How long nothing will be asked, 0 when the next request may find out."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - now_s)

    def acquire(self, now_s: float) -> Permit | None:
        """The permit for a request, None when none may be sent; of a half-open circuit there is one."""
        match self.state(now_s):
            case CircuitState.CLOSED:
                return Permit(self._openings)
            case CircuitState.OPEN:
                return None
            case CircuitState.HALF_OPEN:
                if self._trial is not None:
                    return None
                self._trial = Permit(self._openings)
                return self._trial

    def on_success(self) -> None:
        """A request was answered, whichever: all is well."""
        self._failures, self._open_until, self._trial = 0, None, None
        self._open_s = self._bounds.open_s

    def on_failure(self, permit: Permit, now_s: float) -> bool:
        """A request was not answered. Returns whether that opened the circuit."""
        if permit.openings != self._openings:
            return False  # it was sent before the circuit opened
        if self._open_until is None:
            self._failures += 1
            if self._failures < self._bounds.failures:
                return False
        else:  # only the try can have a permit of this time
            self._open_s = min(2 * self._open_s, self._bounds.longest_s)
        self._openings += 1
        self._open_until, self._trial = now_s + self._open_s, None
        return True

    def on_abandoned(self, permit: Permit) -> None:
        """A request was given up: if it was the try, the next one may find out."""
        if permit is self._trial:
            self._trial = None
