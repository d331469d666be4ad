"""When a peer is asked with OPTIONS whether it is there, and what its answers mean: pure logic, time is an argument.

At `due_s`, `send` begins a question, and `answered` takes what came of it. Times are seconds of any clock that only
goes forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from sipcore.transport.connection_errors import no_connection
from sipcore.trunks.trunk import NO_ANSWER_YET, TrunkStatus

FIRST_S: Final = 5.0
"""The first question comes at most so late: soon, but not everybody's at once."""
JITTER: Final = 0.1
"""Questions come up to so much earlier or later."""
GIVE_UP_S: Final = 5.0
"""How long an answer is waited for; over UDP the question has been sent 4 times by then."""
MISSED_AGAIN_S: Final = 5.0
"""A question that had no answer is asked again so soon."""
MOST_MISSED: Final = 3
"""So many in a row, and the peer is not there."""

NEVER_HEARD: Final = "calls are tried all the same: if it never answers OPTIONS by design, set sipQualifySeconds to 0"

End = Literal["answered", "silence", "unresolved", "unreachable"]


@dataclass(frozen=True)
class Reply:
    """What came of a question. `code`: of the final response; `milliseconds`: until it came; `source`: of whom; `why`
    there is none, in PJSIP's words."""

    end: End
    code: int = 0
    milliseconds: float = 0.0
    source: str = ""
    why: str = ""

    @property
    def good(self) -> bool:
        """Whoever refuses is there; whoever has trouble is as good as away (RFC 3261 21.5)."""
        return self.end == "answered" and self.code < 500


class Qualification:
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

    def found(self, now_s: float) -> None:
        """Its host had no address when it was asked last, and has one now."""
        if self.due_s is not None:
            self.due_s = now_s

    def answered(self, now_s: float, utc: datetime, reply: Reply) -> None:
        """What came of the last question."""
        self._sent_s = None
        self._heard = self._heard or reply.end == "answered"
        if reply.good:
            self._missed = 0
            self.status = TrunkStatus("listening", f"answers OPTIONS in {max(1, round(reply.milliseconds))} ms")
        else:
            self._has_missed(utc, reply)
        again_s = MISSED_AGAIN_S if 0 < self._missed < MOST_MISSED else self.every_s
        self.due_s = now_s + min(again_s, self.every_s) * (1 - JITTER + 2 * JITTER * self._chance())

    def _has_missed(self, utc: datetime, reply: Reply) -> None:
        if not self._missed:
            self._since = f"{utc:%H:%M:%S}Z"
        self._missed += 1
        if self._missed >= MOST_MISSED:
            self.status = TrunkStatus("failed", self._what_is_wrong(reply))

    def _what_is_wrong(self, reply: Reply) -> str:
        match reply.end:
            case "answered":
                return f"OPTIONS is answered with {reply.code} since {self._since}"
            case "unresolved":
                return f"the host name is unknown since {self._since}"
            case "unreachable":
                return no_connection(reply.source, reply.why, self._since)
        return f"no answer to OPTIONS since {self._since}" + ("" if self._heard else f"; {NEVER_HEARD}")
