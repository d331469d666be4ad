"""When a trunk registers, refreshes and tries again (RFC 3261 10.2): pure logic, whose time is an argument.

At `due_s`, `send` says what to send, and `answered` takes what came of it. Times are seconds of any clock that only
goes forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from sipcore.transport.connection_errors import connection_failure
from sipcore.trunks.trunk import TrunkStatus

EXPIRES_S: Final = 300
"""What we ask for: so long calls may fail to arrive after a registrar has lost its memory."""
LONGEST_EXPIRES_S: Final = 86400
"""A registrar that wants us to ask for more (423) is not followed."""
REFRESH_BEFORE_S: Final = 60.0
SHORTEST_REFRESH_S: Final = 1.0
FIRST_RETRY_S: Final = 5.0
LAST_RETRY_S: Final = 300.0
LONGEST_RETRY_AFTER_S: Final = 3600.0
JITTER: Final = 0.1
"""Retries come up to so much later: those whom one fault has hit do not come back together."""
GIVE_UP_S: Final = 10.0
"""How long a REGISTER waits for its final response; over UDP it has been sent 5 times by then."""
LOOKUP_S: Final = 6.0
"""So long the host of a new trunk may still be looked for: until then it is not unknown."""
PERMANENT_FAILURES: Final = frozenset({401, 403, 404, 407})
"""The registrar does not know us, or not with this password: soon it will not either, and providers lock out whoever
keeps asking."""

RegisterOutcome = Literal["answered", "silence", "unresolved", "unreachable", "unanswerable"]


@dataclass(frozen=True)
class RegisterResult:
    """What came of a REGISTER. `code` and `reason`: of the final response; `source`: where it came from, or where the
    REGISTER went; seconds that were not said are None."""

    outcome: RegisterOutcome
    code: int = 0
    reason: str = ""
    source: str = ""
    expires_s: int = 0
    """Granted to our contact; 0: it is not bound."""
    retry_after_s: int | None = None
    min_expires_s: int | None = None


class Registration:
    """One trunk's registration. `chance` gives numbers 0..1."""

    def __init__(self, now_s: float, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._expires_s = EXPIRES_S
        self._failures = 0
        self._lookup_until_s = now_s + LOOKUP_S
        self._sent_s: float | None = None
        self._bound_until_s = now_s
        """The registrar may have our contact until then."""
        self.unregistering = False
        """What is sent from now on takes the contact away."""
        self.due_s: float | None = now_s
        """When `send` is due; None: not before an answer, or never again."""
        self.status = TrunkStatus("registering")
        self.ended = False
        """It has ended: the registrar knows it, or cannot be told."""

    @property
    def give_up_s(self) -> float | None:
        """When an answer is awaited no longer; None: none is awaited."""
        return None if self._sent_s is None else self._sent_s + GIVE_UP_S

    def send(self, now_s: float) -> int:
        """Its time has come: the expiry to ask for, in seconds; 0 removes the contact. An answer is awaited then."""
        self._sent_s, self.due_s = now_s, None
        return 0 if self.unregistering else self._expires_s

    def on_result(self, now_s: float, utc: datetime, outcome: RegisterResult, *, another: bool = False) -> None:
        """What came of the last `send`. `another`: the registrar has an address that has not been tried."""
        self._sent_s = None
        if outcome.outcome == "silence":
            self._bound_until_s = max(self._bound_until_s, now_s + self._expires_s)
        if self.unregistering:
            self.ended = True
        elif outcome.outcome == "answered" and outcome.code // 100 == 2 and outcome.expires_s > 0:
            self._succeed(now_s, utc, outcome)
        elif (outcome.code == 423 and self._adopt_min_expires(outcome.min_expires_s)) or (
            another and _is_target_failure(outcome)
        ):
            self.due_s = now_s
        elif outcome.outcome == "unresolved" and now_s < self._lookup_until_s:
            self.due_s = self._lookup_until_s
        else:
            self._fail(now_s, outcome)

    def on_connection_lost(self, now_s: float) -> None:
        """The connection to the registrar is gone: calls cannot come in over it."""
        if self.due_s is not None and not self.unregistering and self.status.state == "registered":
            self.due_s = min(self.due_s, now_s + FIRST_RETRY_S * self._chance())

    def on_host_resolved(self, now_s: float) -> None:
        """The registrar's host has addresses that it did not have."""
        if self.due_s is not None and not self.unregistering and self.status.state != "registered":
            self.due_s = now_s

    def unregister(self, now_s: float) -> None:
        """The trunk ends or changes: the contact is taken away, when it may be there. What has been sent before is
        awaited no longer: a registrar takes a REGISTER no more once it has seen the next one (RFC 3261 10.3)."""
        self.unregistering = True
        self.status = TrunkStatus("unregistered")
        self.ended = self._sent_s is None and self._bound_until_s <= now_s
        self.due_s = None if self.ended else now_s

    def _succeed(self, now_s: float, utc: datetime, outcome: RegisterResult) -> None:
        self._failures = 0
        granted_s = outcome.expires_s
        self._bound_until_s = now_s + granted_s
        self.due_s = now_s + refresh_after_s(min(granted_s, self._expires_s))
        until = utc + timedelta(seconds=granted_s)
        self.status = TrunkStatus("registered", f"registered until {until:%H:%M:%S}Z at {outcome.source}")

    def _fail(self, now_s: float, outcome: RegisterResult) -> None:
        self._failures += 1
        delay_s = (
            LAST_RETRY_S if outcome.code in PERMANENT_FAILURES else FIRST_RETRY_S * 2 ** min(self._failures - 1, 10)
        )
        delay_s = min(delay_s, LAST_RETRY_S)
        if outcome.retry_after_s is not None:
            delay_s = min(max(outcome.retry_after_s, FIRST_RETRY_S), LONGEST_RETRY_AFTER_S)
        self.due_s = now_s + delay_s * (1 + JITTER * self._chance())
        self.status = TrunkStatus("failed", why_failed(outcome))

    def _adopt_min_expires(self, min_expires_s: int | None) -> bool:
        """After 423: whether there is a longer expiry to ask for, which is asked for from now on."""
        if min_expires_s is None or not self._expires_s < min_expires_s <= LONGEST_EXPIRES_S:
            return False
        self._expires_s = min_expires_s
        return True


def refresh_after_s(expires_s: float) -> float:
    """When to refresh a registration of that length: a minute before its end, or at half of a short one."""
    return max(expires_s - REFRESH_BEFORE_S, expires_s / 2, SHORTEST_REFRESH_S)


def why_failed(outcome: RegisterResult) -> str:
    """For the operator."""
    answer = f"{outcome.code} {outcome.reason} from {outcome.source}".replace("  ", " ")
    match outcome.outcome, outcome.code:
        case ("silence", _):
            return f"no answer from {outcome.source}"
        case ("unresolved", _):
            return "the host name is unknown"
        case ("unreachable", _):
            return connection_failure(outcome.source, outcome.reason)
        case ("unanswerable", _):
            return f"{answer}: it asks for a kind of authentication that is not supported"
        case (_, 401 | 407):
            return f"{answer}: the user name or the password is wrong"
        case (_, 423):
            return f"{answer}: it asks for a registration of over a day, or does not say how long it must be"
        case (_, code) if code // 100 == 2:
            return f"{answer}, but it has not kept the registration"
    return answer


def _is_target_failure(outcome: RegisterResult) -> bool:
    """Whether it is a trouble of one address, which another may not have (RFC 3263 4.3)."""
    return outcome.outcome in ("silence", "unreachable") or outcome.code in (408, 503, 504)
