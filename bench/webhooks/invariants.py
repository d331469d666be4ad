"""What must hold after a storm of webhooks: told by the receiver's log, the moments of the kills and the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench.webhooks.faulty_receiver import Arrival

MOST_ATTEMPTS: Final = 5
READ_LATE_S: Final = 1.0
"""How long after the end of its sender a request may still lie unread at the receiver."""


@dataclass(frozen=True)
class Kill:
    """Of a sender: the signal was sent at `since`, the process was gone at `until` (monotonic clock, s)."""

    since: float
    until: float


@dataclass(frozen=True)
class Recorded:
    """An attempt as the sender's database has it; times in ms since 1970."""

    delivery: str
    attempt: int
    status: str
    created_ms: int
    duration_ms: int


@dataclass(frozen=True)
class Storm:
    """All that is known. `calls` were asked for, and `expected` are those that ended; `delays_s` is the schedule."""

    calls: int
    expected: frozenset[str]
    log: Sequence[Arrival]
    kills: Sequence[Kill]
    recorded: Sequence[Recorded]
    delays_s: Sequence[float]
    redirected: int = 0


def by_delivery(log: Iterable[Arrival]) -> dict[str, list[Arrival]]:
    """The requests of each event, in the order of coming."""
    found: defaultdict[str, list[Arrival]] = defaultdict(list)
    for each in sorted(log, key=lambda arrival: arrival.at):
        found[each.delivery].append(each)
    return found


def cut(storm: Storm) -> int:
    """Requests that came again because a kill had cut their attempt before its end was recorded."""
    return len(storm.log) - len({(each.delivery, each.attempt) for each in storm.log})


def faults(storm: Storm) -> list[str]:
    """What does not hold; empty when all does."""
    found = list(_of_all(storm))
    recorded = _recorded_by_delivery(storm.recorded)
    for delivery, arrivals in by_delivery(storm.log).items():
        found += [f"event {delivery}: {fault}" for fault in _of_event(arrivals, storm)]
        found += [f"event {delivery}: {fault}" for fault in _of_record(arrivals, recorded.get(delivery, []), storm)]
    return found


def _of_all(storm: Storm) -> Iterator[str]:
    if len(storm.expected) != storm.calls:
        yield f"{len(storm.expected)} calls ended, {storm.calls} were asked for"
    told = defaultdict(set)
    for each in storm.log:
        told[each.call_id].add(each.delivery)
    yield from (f"call {each}: no request told of it" for each in sorted(storm.expected - set(told)))
    yield from (f"call {each} is none of those that ended" for each in sorted(set(told) - storm.expected))
    yield from (f"call {each} has {len(ids)} events" for each, ids in told.items() if len(ids) > 1)
    if storm.redirected:
        yield f"{storm.redirected} redirects were followed"


def _of_event(arrivals: Sequence[Arrival], storm: Storm) -> Iterator[str]:
    if not any(each.succeeded for each in arrivals):
        yield "never answered with 200"
    if len({each.sha256 for each in arrivals}) > 1:
        yield "its body changed"
    if not all(each.verified for each in arrivals):
        yield "a signature does not hold"
    if not all(1 <= each.attempt <= MOST_ATTEMPTS for each in arrivals):
        yield f"an attempt has a number outside 1..{MOST_ATTEMPTS}"
    for earlier, later in pairwise(arrivals):
        yield from _of_pair(earlier, later, storm)


def _of_pair(earlier: Arrival, later: Arrival, storm: Storm) -> Iterator[str]:
    """Two requests of an event, one after the other."""
    if later.attempt == earlier.attempt:
        if not any(earlier.at - READ_LATE_S <= kill.until and kill.since <= later.at for kill in storm.kills):
            yield f"attempt {later.attempt} came twice without a kill between"
    elif later.attempt != earlier.attempt + 1:
        yield f"attempt {later.attempt} came after {earlier.attempt}"
    elif later.at < earlier.ended + storm.delays_s[earlier.attempt - 1]:
        wait_s = later.at - earlier.ended
        yield f"attempt {later.attempt} came {wait_s:.3f} s after {earlier.attempt} had failed"


def _of_record(arrivals: Sequence[Arrival], recorded: Sequence[Recorded], storm: Storm) -> Iterator[str]:
    """What the database says of an event."""
    if [each.attempt for each in recorded] != sorted({each.attempt for each in arrivals}):
        yield f"attempts {[each.attempt for each in recorded]} are recorded"
    if recorded and [each.status for each in recorded] != ["failed"] * (len(recorded) - 1) + ["succeeded"]:
        yield f"recorded as {[each.status for each in recorded]}"
    for earlier, later in pairwise(recorded):
        wait_ms = later.created_ms - earlier.created_ms - earlier.duration_ms
        if wait_ms < 1000 * storm.delays_s[earlier.attempt - 1]:
            yield f"attempt {later.attempt} began {wait_ms} ms after the end of {earlier.attempt}"


def _recorded_by_delivery(recorded: Iterable[Recorded]) -> dict[str, list[Recorded]]:
    found: defaultdict[str, list[Recorded]] = defaultdict(list)
    for each in sorted(recorded, key=lambda one: one.attempt):
        found[each.delivery].append(each)
    return found
