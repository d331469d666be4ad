"""Invariants of webhook delivery under fault injection, checked against the receiver's requests, the times of the kills
and the sender's database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench.webhooks.faulty_receiver import ReceivedRequest

MAX_ATTEMPTS: Final = 5
MAX_READ_DELAY_S: Final = 1.0
"""Longest time for which a request may remain unread at the receiver after its sender was killed."""


@dataclass(frozen=True)
class Kill:
    """A kill of a sender, or another fault of it: the times of the signal and of the end of the process or of the fault
    (monotonic clock, s)."""

    signalled_s: float
    ended_s: float
    source: str | None = None
    """The address of the sender; None: there is no other one."""
    resumed: bool = False
    """The process went on afterwards, and may have sent what another sender had sent meanwhile."""


@dataclass(frozen=True)
class RecordedAttempt:
    """An attempt in the sender's database; times in ms since 1970."""

    delivery_id: str
    attempt: int
    status: str
    created_ms: int
    duration_ms: int


@dataclass(frozen=True)
class DeliveryHistory:
    """The history of all deliveries: the number of calls that were requested, the calls that ended, the requests at the
    receiver, the kills, the attempts in the database, the sender's retry delays and its response timeout."""

    requested_calls: int
    ended_calls: frozenset[str]
    requests: Sequence[ReceivedRequest]
    kills: Sequence[Kill]
    attempts: Sequence[RecordedAttempt]
    retry_delays_s: Sequence[float]
    timeout_s: float
    redirected: int = 0


def requests_by_delivery(requests: Iterable[ReceivedRequest]) -> dict[str, list[ReceivedRequest]]:
    """The requests of each event by the id of its delivery, in the order of their times."""
    deliveries: defaultdict[str, list[ReceivedRequest]] = defaultdict(list)
    for request in sorted(requests, key=lambda each: each.received_s):
        deliveries[request.delivery_id].append(request)
    return deliveries


def repeated_requests(history: DeliveryHistory) -> int:
    """Number of requests that repeat an attempt, because a kill interrupted it before its end was recorded."""
    return len(history.requests) - len({(each.delivery_id, each.attempt) for each in history.requests})


def violations(history: DeliveryHistory) -> list[str]:
    """The violated invariants, in words."""
    found = list(_call_violations(history))
    attempts = _attempts_by_delivery(history.attempts)
    for delivery_id, requests in requests_by_delivery(history.requests).items():
        recorded = attempts.get(delivery_id, [])
        found += [f"event {delivery_id}: {each}" for each in _request_violations(requests, recorded, history)]
        found += [f"event {delivery_id}: {each}" for each in _attempt_violations(requests, recorded, history)]
    return found


def _call_violations(history: DeliveryHistory) -> Iterator[str]:
    if len(history.ended_calls) != history.requested_calls:
        yield f"{len(history.ended_calls)} calls ended, {history.requested_calls} were requested"
    deliveries = defaultdict(set)
    for request in history.requests:
        deliveries[request.call_id].add(request.delivery_id)
    yield from (f"call {each}: no webhook was received" for each in sorted(history.ended_calls - set(deliveries)))
    yield from (f"call {each} has not ended" for each in sorted(set(deliveries) - history.ended_calls))
    yield from (f"call {each} has {len(ids)} events" for each, ids in deliveries.items() if len(ids) > 1)
    if history.redirected:
        yield f"{history.redirected} redirects were followed"


def _request_violations(
    requests: Sequence[ReceivedRequest], attempts: Sequence[RecordedAttempt], history: DeliveryHistory
) -> Iterator[str]:
    """The violations in the requests of one event, with its recorded attempts."""
    timed_out = _timed_out(attempts, history)
    if not any(each.succeeded for each in requests):
        yield "never answered with 200"
    if len({each.body_sha256 for each in requests}) > 1:
        yield "its body changed"
    if not all(each.signatures_valid for each in requests):
        yield "a signature is invalid"
    if not all(1 <= each.attempt <= MAX_ATTEMPTS for each in requests):
        yield f"an attempt has a number outside 1..{MAX_ATTEMPTS}"
    for earlier, later in pairwise(requests):
        yield from _pair_violations(earlier, later, timed_out, history)


def _pair_violations(
    earlier: ReceivedRequest, later: ReceivedRequest, timed_out: set[int], history: DeliveryHistory
) -> Iterator[str]:
    """The violations in two consecutive requests of an event. `timed_out`: the attempts to which the sender got no
    response in time. The receiver may have read such a request long after, so that its clock says nothing of the delay,
    which `_attempt_violations` checks by the sender's clock, or never, because the sender had closed its connection."""
    if later.attempt == earlier.attempt:
        if not any(_excuses(kill, earlier, later) for kill in history.kills):
            yield f"attempt {later.attempt} came twice without a kill between"
    elif later.attempt < earlier.attempt or not timed_out.issuperset(range(earlier.attempt + 1, later.attempt)):
        yield f"attempt {later.attempt} came after {earlier.attempt}"
    elif (
        later.attempt == earlier.attempt + 1
        and earlier.attempt not in timed_out
        and later.received_s < earlier.answered_s + history.retry_delays_s[earlier.attempt - 1]
    ):
        wait_s = later.received_s - earlier.answered_s
        yield f"attempt {later.attempt} came {wait_s:.3f} s after {earlier.attempt} had failed"


def _excuses(kill: Kill, earlier: ReceivedRequest, later: ReceivedRequest) -> bool:
    """True if the sender of a request could not record its end, or has sent a request that it had begun before."""
    senders = {None, earlier.source, *((later.source,) if kill.resumed else ())}
    begin_s = earlier.received_s - MAX_READ_DELAY_S
    return kill.source in senders and begin_s <= kill.ended_s and kill.signalled_s <= later.received_s


def _attempt_violations(
    requests: Sequence[ReceivedRequest], attempts: Sequence[RecordedAttempt], history: DeliveryHistory
) -> Iterator[str]:
    """The violations in the recorded attempts of an event."""
    received = {each.attempt for each in requests}
    if [each.attempt for each in attempts] != sorted(received | _timed_out(attempts, history)):
        yield f"attempts {[each.attempt for each in attempts]} are recorded"
    if attempts and [each.status for each in attempts] != ["failed"] * (len(attempts) - 1) + ["succeeded"]:
        yield f"recorded as {[each.status for each in attempts]}"
    for earlier, later in pairwise(attempts):
        wait_ms = later.created_ms - earlier.created_ms - earlier.duration_ms
        if wait_ms < 1000 * history.retry_delays_s[earlier.attempt - 1]:
            yield f"attempt {later.attempt} began {wait_ms} ms after the end of {earlier.attempt}"


def _timed_out(attempts: Iterable[RecordedAttempt], history: DeliveryHistory) -> set[int]:
    """The attempts to which the sender got no response in time."""
    return {each.attempt for each in attempts if each.duration_ms >= 1000 * history.timeout_s}


def _attempts_by_delivery(attempts: Iterable[RecordedAttempt]) -> dict[str, list[RecordedAttempt]]:
    deliveries: defaultdict[str, list[RecordedAttempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda each: each.attempt):
        deliveries[attempt.delivery_id].append(attempt)
    return deliveries
