"""When a peer is asked with OPTIONS whether it is there, and what its answers mean: pure logic, time is an argument.

At `due_s`, `send` begins a question, and `answered` takes what came of it. Times are seconds of any clock that only
goes forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from sipcore.transport.connection_errors import connection_failure
from sipcore.trunks.trunk import NO_ANSWER_YET, TrunkStatus

FIRST_S: Final = 5.0
"""The first question comes at most so late: soon, but not everybody's at once."""
JITTER: Final = 0.1
"""Questions come up to so much earlier or later."""
GIVE_UP_S: Final = 5.0
"""How long an answer is waited for; over UDP the question has been sent 4 times by then."""
RETRY_S: Final = 5.0
"""A question that had no answer is asked again so soon."""
MAX_MISSED: Final = 3
"""So many in a row, and the peer is not there."""

NEVER_ANSWERED: Final = (
    "calls are tried all the same: if it never answers OPTIONS by design, set sipQualifySeconds to 0"
)

OptionsOutcome = Literal["answered", "silence", "unresolved", "unreachable"]


@dataclass(frozen=True)
class OptionsResult:
    """What came of a question. `code`: of the final response; `milliseconds`: until it came; `source`: of whom; `why`
    there is none, in PJSIP's words."""

    outcome: OptionsOutcome
    code: int = 0
    milliseconds: float = 0.0
    source: str = ""
    why: str = ""

    @property
    def reachable(self) -> bool:
        """Whoever refuses is there; whoever has trouble is as good as away (RFC 3261 21.5)."""
        return self.outcome == "answered" and self.code < 500


class Qualify:
    """One peer's. `every_s`: between two questions; `chance` gives numbers 0..1."""

    def __init__(self, now_s: float, every_s: float, chance: Callable[[], float]) -> None:
        self.every_s = every_s
        self._chance = chance
        self._missed = 0
        self._heard = False
        self._since = ""
        self._sent_s: float | None = None
        self.due_s: float | None = now_s + min(every_s, FIRST_S) * chance()
        """When `send` is due; None while an answer is awaited."""
        self.status = TrunkStatus("listening", NO_ANSWER_YET)

    @property
    def give_up_s(self) -> float | None:
        """When an answer is awaited no longer; None: none is awaited."""
        return None if self._sent_s is None else self._sent_s + GIVE_UP_S

    def send(self, now_s: float) -> None:
        """Its time has come."""
        self._sent_s, self.due_s = now_s, None

    def on_host_resolved(self, now_s: float) -> None:
        """Its host had no address when it was asked last, and has one now."""
        if self.due_s is not None:
            self.due_s = now_s

    def on_result(self, now_s: float, utc: datetime, reply: OptionsResult) -> None:
        """What came of the last question."""
        self._sent_s = None
        self._heard = self._heard or reply.outcome == "answered"
        if reply.reachable:
            self._missed = 0
            self.status = TrunkStatus("listening", f"answers OPTIONS in {max(1, round(reply.milliseconds))} ms")
        else:
            self._miss(utc, reply)
        again_s = RETRY_S if 0 < self._missed < MAX_MISSED else self.every_s
        self.due_s = now_s + min(again_s, self.every_s) * (1 - JITTER + 2 * JITTER * self._chance())

    def _miss(self, utc: datetime, reply: OptionsResult) -> None:
        if not self._missed:
            self._since = f"{utc:%H:%M:%S}Z"
        self._missed += 1
        if self._missed >= MAX_MISSED:
            self.status = TrunkStatus("failed", self._failure_detail(reply))

    def _failure_detail(self, reply: OptionsResult) -> str:
        match reply.outcome:
            case "answered":
                return f"OPTIONS is answered with {reply.code} since {self._since}"
            case "unresolved":
                return f"the host name is unknown since {self._since}"
            case "unreachable":
                return connection_failure(reply.source, reply.why, self._since)
        return f"no answer to OPTIONS since {self._since}" + ("" if self._heard else f"; {NEVER_ANSWERED}")
