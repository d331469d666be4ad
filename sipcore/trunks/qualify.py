"""Qualify: when OPTIONS are sent to a trunk without a registration, and which status the responses mean. Time is an
argument.

At `due_s`, call `begin_request`, then `on_result` with the result. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from sipcore.transport.connection_errors import describe_connection_failure
from sipcore.trunks.trunk import NO_ANSWER_YET, TrunkStatus

MAX_FIRST_DELAY_S: Final = 5.0
"""The first OPTIONS is sent within this time, at random, so that not all hosts get theirs at once."""
JITTER: Final = 0.1
"""OPTIONS are sent earlier or later by up to this share of the interval."""
RESPONSE_TIMEOUT_S: Final = 5.0
"""The wait for a response; over UDP the OPTIONS has been sent 4 times by then."""
RETRY_S: Final = 5.0
"""The interval after an OPTIONS without a good response."""
MAX_MISSED: Final = 3
"""After this many in a row the trunk is unreachable."""

NEVER_ANSWERED: Final = (
    "calls are tried all the same: if it never answers OPTIONS by design, set sipQualifySeconds to 0"
)

OptionsOutcome = Literal["answered", "timeout", "unresolved", "unreachable"]


@dataclass(frozen=True)
class OptionsResult:
    """The result of an OPTIONS. `code`: of the final response; `milliseconds`: until it came; `source`: the address
    that it was sent to; `why`: PJSIP's error text when there is no response."""

    outcome: OptionsOutcome
    code: int = 0
    milliseconds: float = 0.0
    source: str = ""
    why: str = ""

    @property
    def reachable(self) -> bool:
        """True for any response below 500: a peer that rejects OPTIONS is reachable, one with a server error (RFC 3261
        21.5) is not."""
        return self.outcome == "answered" and self.code < 500


class Qualify:
    """The state machine of one host's OPTIONS. `interval_s`: between two OPTIONS; `random_fraction` returns 0..1."""

    def __init__(self, now_s: float, interval_s: float, random_fraction: Callable[[], float]) -> None:
        self.interval_s = interval_s
        self._random_fraction = random_fraction
        self._missed = 0
        self._has_answered = False
        self._since = ""
        self._sent_s: float | None = None
        self.due_s: float | None = now_s + min(interval_s, MAX_FIRST_DELAY_S) * random_fraction()
        """When `begin_request` is due; None while a response is awaited."""
        self.status = TrunkStatus("listening", NO_ANSWER_YET)

    @property
    def response_deadline_s(self) -> float | None:
        """When the wait for a response ends; None when none is awaited."""
        return None if self._sent_s is None else self._sent_s + RESPONSE_TIMEOUT_S

    def begin_request(self, now_s: float) -> None:
        """An OPTIONS is sent now."""
        self._sent_s, self.due_s = now_s, None

    def on_host_resolved(self, now_s: float) -> None:
        """The host had no address at the last OPTIONS, and has one now."""
        if self.due_s is not None:
            self.due_s = now_s

    def on_result(self, now_s: float, utc: datetime, result: OptionsResult) -> None:
        """The result of the last OPTIONS."""
        self._sent_s = None
        self._has_answered = self._has_answered or result.outcome == "answered"
        if result.reachable:
            self._missed = 0
            self.status = TrunkStatus("listening", f"answers OPTIONS in {max(1, round(result.milliseconds))} ms")
        else:
            self._miss(utc, result)
        again_s = RETRY_S if 0 < self._missed < MAX_MISSED else self.interval_s
        self.due_s = now_s + min(again_s, self.interval_s) * (1 - JITTER + 2 * JITTER * self._random_fraction())

    def _miss(self, utc: datetime, result: OptionsResult) -> None:
        if not self._missed:
            self._since = f"{utc:%H:%M:%S}Z"
        self._missed += 1
        if self._missed >= MAX_MISSED:
            self.status = TrunkStatus("failed", self._failure_detail(result))

    def _failure_detail(self, result: OptionsResult) -> str:
        match result.outcome:
            case "answered":
                return f"OPTIONS is answered with {result.code} since {self._since}"
            case "unresolved":
                return f"the host name is unknown since {self._since}"
            case "unreachable":
                return describe_connection_failure(result.source, result.why, self._since)
        return f"no answer to OPTIONS since {self._since}" + ("" if self._has_answered else f"; {NEVER_ANSWERED}")
