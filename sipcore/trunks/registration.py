"""The registration state machine: when a trunk registers, refreshes and retries (RFC 3261 10.2). Time is an argument.

At `due_s`, call `begin_request`, which returns the expiry to request, then `on_result` with the result. Times are
seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from sipcore.transport.connection_errors import describe_connection_failure
from sipcore.trunks.trunk import TrunkStatus

EXPIRES_S: Final = 300
"""The requested expiry: after a registrar has lost its bindings, inbound calls may fail for this long."""
MAX_EXPIRES_S: Final = 86400
"""A registrar that demands more (423) is not followed."""
REFRESH_BEFORE_S: Final = 60.0
MIN_REFRESH_S: Final = 1.0
FIRST_RETRY_S: Final = 5.0
MAX_RETRY_S: Final = 300.0
MAX_RETRY_AFTER_S: Final = 3600.0
JITTER: Final = 0.1
"""Retries are later by up to this share, so that trunks which failed together do not retry together."""
RESPONSE_TIMEOUT_S: Final = 10.0
"""A REGISTER waits this long for its final response; over UDP it has been sent 5 times by then."""
LOOKUP_TIMEOUT_S: Final = 6.0
"""The first lookup of a new trunk's host may take this long before the host counts as unknown."""
PERMANENT_FAILURES: Final = frozenset({401, 403, 404, 407})
"""The registrar does not know the user or the password: a retry soon will not help, and providers lock out a client
that keeps asking."""

RegisterOutcome = Literal["answered", "timeout", "unresolved", "unreachable", "unsupported_challenge"]
_UNREACHED: Final = frozenset[RegisterOutcome](("timeout", "unresolved", "unreachable"))


@dataclass(frozen=True)
class RegisterResult:
    """The result of a REGISTER. `code` and `reason`: of the final response; `source`: the address that it came from, or
    that the REGISTER went to; seconds that the response did not state are None."""

    outcome: RegisterOutcome
    code: int = 0
    reason: str = ""
    source: str = ""
    expires_s: int = 0
    """The expiry granted to our contact; 0: the contact is not bound."""
    retry_after_s: int | None = None
    min_expires_s: int | None = None


class Registration:
    """The registration of one trunk. `random_fraction` returns 0..1."""

    def __init__(self, now_s: float, random_fraction: Callable[[], float]) -> None:
        self._random_fraction = random_fraction
        self._expires_s = EXPIRES_S
        self._failures = 0
        self._lookup_until_s = now_s + LOOKUP_TIMEOUT_S
        self._sent_s: float | None = None
        self._bound_until_s = now_s
        """The registrar may have our contact bound until then."""
        self.unregistering = False
        """REGISTERs from now on remove the contact."""
        self.due_s: float | None = now_s
        """When `begin_request` is due; None: not before a response, or never again."""
        self.status = TrunkStatus("registering")
        self.ended = False
        """The contact has been removed, or the registrar could not be reached."""
        self.unreached = 0
        """How many times in succession no target of the registrar could be reached."""
        self.unreached_since_s = now_s
        """When the first of these ended."""

    @property
    def response_deadline_s(self) -> float | None:
        """When the wait for a response ends; None when none is awaited."""
        return None if self._sent_s is None else self._sent_s + RESPONSE_TIMEOUT_S

    def begin_request(self, now_s: float) -> int:
        """A REGISTER is sent now: returns its expiry in seconds; 0 removes the contact."""
        self._sent_s, self.due_s = now_s, None
        return 0 if self.unregistering else self._expires_s

    def on_result(
        self, now_s: float, utc: datetime, result: RegisterResult, *, has_untried_target: bool = False
    ) -> None:
        """The result of the last request. `has_untried_target`: the registrar has a target that has not been tried."""
        self._sent_s = None
        if result.outcome == "timeout":
            self._bound_until_s = max(self._bound_until_s, now_s + self._expires_s)
        if self.unregistering:
            self.ended = True
        elif result.outcome == "answered" and result.code // 100 == 2 and result.expires_s > 0:
            self._succeed(now_s, utc, result)
        elif (result.code == 423 and self._adopt_min_expires(result.min_expires_s)) or (
            has_untried_target and _is_target_failure(result)
        ):
            self.due_s = now_s
        elif result.outcome == "unresolved" and now_s < self._lookup_until_s:
            self.due_s = self._lookup_until_s
        else:
            self._fail(now_s, result)

    def on_connection_lost(self, now_s: float) -> None:
        """The connection to the registrar is lost: inbound calls cannot use it."""
        if self.due_s is not None and not self.unregistering and self.status.state == "registered":
            self.due_s = min(self.due_s, now_s + FIRST_RETRY_S * self._random_fraction())

    def on_host_resolved(self, now_s: float) -> None:
        """The registrar's host has new addresses."""
        if self.due_s is not None and not self.unregistering and self.status.state != "registered":
            self.due_s = now_s

    def unregister(self, now_s: float) -> None:
        """Remove the contact, if it may be bound. The response to an earlier REGISTER is no longer awaited, because a
        registrar ignores a REGISTER after the next one (RFC 3261 10.3)."""
        self.unregistering = True
        self.status = TrunkStatus("unregistered")
        self.ended = self._sent_s is None and self._bound_until_s <= now_s
        self.due_s = None if self.ended else now_s

    def _succeed(self, now_s: float, utc: datetime, result: RegisterResult) -> None:
        self._failures = self.unreached = 0
        granted_s = result.expires_s
        self._bound_until_s = now_s + granted_s
        self.due_s = now_s + refresh_after_s(min(granted_s, self._expires_s))
        until = utc + timedelta(seconds=granted_s)
        self.status = TrunkStatus("registered", f"registered until {until:%H:%M:%S}Z at {result.source}")

    def _fail(self, now_s: float, result: RegisterResult) -> None:
        self._failures += 1
        if self.unreached == 0:
            self.unreached_since_s = now_s
        self.unreached = self.unreached + 1 if result.outcome in _UNREACHED else 0
        delay_s = MAX_RETRY_S if result.code in PERMANENT_FAILURES else FIRST_RETRY_S * 2 ** min(self._failures - 1, 10)
        delay_s = min(delay_s, MAX_RETRY_S)
        if result.retry_after_s is not None:
            delay_s = min(max(result.retry_after_s, FIRST_RETRY_S), MAX_RETRY_AFTER_S)
        self.due_s = now_s + delay_s * (1 + JITTER * self._random_fraction())
        self.status = TrunkStatus("failed", failure_detail(result))

    def _adopt_min_expires(self, min_expires_s: int | None) -> bool:
        """After 423: request the registrar's minimum from now on; returns False when it is missing or too long."""
        if min_expires_s is None or not self._expires_s < min_expires_s <= MAX_EXPIRES_S:
            return False
        self._expires_s = min_expires_s
        return True


def refresh_after_s(expires_s: float) -> float:
    """Seconds until the refresh of a registration: a minute before its end, or half of a short one."""
    return max(expires_s - REFRESH_BEFORE_S, expires_s / 2, MIN_REFRESH_S)


def failure_detail(result: RegisterResult) -> str:
    """The cause of a failure, for the operator."""
    answer = f"{result.code} {result.reason} from {result.source}".replace("  ", " ")
    match result.outcome, result.code:
        case ("timeout", _):
            return f"no answer from {result.source}"
        case ("unresolved", _):
            return "the host name is unknown"
        case ("unreachable", _):
            return describe_connection_failure(result.source, result.reason)
        case ("unsupported_challenge", _):
            return f"{answer}: it asks for a kind of authentication that is not supported"
        case (_, 401 | 407):
            return f"{answer}: the user name or the password is wrong"
        case (_, 423):
            return f"{answer}: it asks for a registration of over a day, or does not say how long it must be"
        case (_, code) if code // 100 == 2:
            return f"{answer}, but it has not kept the registration"
    return answer


def _is_target_failure(result: RegisterResult) -> bool:
    """True if another target of the host may work (RFC 3263 4.3)."""
    return result.outcome in ("timeout", "unreachable") or result.code in (408, 503, 504)
