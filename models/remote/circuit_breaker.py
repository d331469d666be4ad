"""Circuit breaker: a server that fails repeatedly gets no requests for a while, so that no caller waits for it.

Pure: time comes as an argument, in seconds of any clock that does not go back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class CircuitState(Enum):
    """CLOSED: requests pass. OPEN: no requests. HALF_OPEN: one probe request."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, eq=False)
class Permit:
    """Permission for one request. `opened_count`: how often the circuit had opened before it."""

    opened_count: int


@dataclass(frozen=True)
class CircuitBreakerSettings:
    """`failures` in a row open the circuit for `open_s` seconds; each failed probe doubles the time, up to
    `max_open_s`."""

    failures: int = 3
    open_s: float = 10.0
    max_open_s: float = 120.0


DEFAULT_SETTINGS: Final = CircuitBreakerSettings()


class CircuitBreaker:
    """The circuit of one server. Each permit from `acquire` is reported once: by `on_success`, `on_failure`, or
    `on_abandoned` if the request was cancelled. A half-open circuit counts only its probe, and no request from before
    it opened."""

    def __init__(self, settings: CircuitBreakerSettings = DEFAULT_SETTINGS) -> None:
        self._settings = settings
        self._failures = 0
        self._open_until: float | None = None
        self._open_s = settings.open_s
        self._openings = 0
        self._probe: Permit | None = None

    def state(self, now_s: float) -> CircuitState:
        """The state of the circuit."""
        if self._open_until is None:
            return CircuitState.CLOSED
        return CircuitState.HALF_OPEN if self._probe or now_s >= self._open_until else CircuitState.OPEN

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next probe, 0 if a request may be sent."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - now_s)

    def acquire(self, now_s: float) -> Permit | None:
        """Acquire a permit for a request; None if none may be sent. A half-open circuit gives one for its probe."""
        match self.state(now_s):
            case CircuitState.CLOSED:
                return Permit(self._openings)
            case CircuitState.OPEN:
                return None
            case CircuitState.HALF_OPEN:
                if self._probe is not None:
                    return None
                self._probe = Permit(self._openings)
                return self._probe

    def on_success(self) -> None:
        """Report a response, of any request: closes the circuit."""
        self._failures, self._open_until, self._probe = 0, None, None
        self._open_s = self._settings.open_s

    def on_failure(self, permit: Permit, now_s: float) -> bool:
        """Report a failed request. Returns True if that opened the circuit."""
        if permit.opened_count != self._openings:
            return False  # it was sent before the circuit opened
        if self._open_until is None:
            self._failures += 1
            if self._failures < self._settings.failures:
                return False
        else:  # only the probe has a permit of the current `opened_count`
            self._open_s = min(2 * self._open_s, self._settings.max_open_s)
        self._openings += 1
        self._open_until, self._probe = now_s + self._open_s, None
        return True

    def on_abandoned(self, permit: Permit) -> None:
        """Report a cancelled request: if it was the probe, the next request is."""
        if permit is self._probe:
            self._probe = None
