"""Each invariant of a cluster's history is violated by a history that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bench.webhooks.faulty_receiver import ReceivedRequest
from bench.webhooks.invariants import Kill, RecordedAttempt
from tests.trunkline.nodes.cluster_invariants import (
    BalanceChange,
    ClusterHistory,
    SeenCall,
    StoredCall,
    StoredState,
    violations,
)

CALL = StoredCall("call", "sip", "node1", "completed", "customer_ended", True, 2.5)
CHARGE = BalanceChange("call", Decimal("-2.5"), Decimal("7.5"))
STORED = StoredState(
    calls=(CALL,),
    deliveries={"call": 1},
    pending=0,
    attempts=(RecordedAttempt("event", 1, "succeeded", 0, 10),),
    balance=Decimal("7.5"),
    changes=(CHARGE,),
    holders={"retention": "node1", "audit": ""},
)
NODE1, NODE2 = "10.0.0.1", "10.0.0.2"
REQUEST = ReceivedRequest("event", 1, "call", "answers", 9.0, 9.0, "hash", signatures_valid=True, source=NODE1)
AGAIN = replace(REQUEST, received_s=40.0, answered_s=40.0, source=NODE2)
HISTORY = ClusterHistory(
    stored=STORED,
    seen=(SeenCall("sip", "node1", 1.0, 2.0, "pbx", disturbed=False),),
    requests=(REQUEST,),
    faults=(),
    retry_delays_s=(0.1,),
    webhook_timeout_s=1.0,
    bound={"user": {"node1"}},
    start_balance=Decimal(10),
    max_calls=1,
    rejected_reasons=("error",),
)


def with_stored(**changes: object) -> ClusterHistory:
    """The history with other stored rows."""
    return replace(HISTORY, stored=replace(STORED, **changes))  # type: ignore[arg-type]


def test_a_history_without_a_fault_violates_nothing() -> None:
    assert violations(HISTORY) == []


def test_a_call_whose_node_had_a_fault_may_end_by_restart() -> None:
    stored = replace(STORED, calls=(replace(CALL, ended_reason="server_restart"),))
    (seen,) = HISTORY.seen
    assert violations(replace(HISTORY, stored=stored, seen=(replace(seen, ended_by="", disturbed=True),))) == []
    assert violations(replace(HISTORY, stored=stored))


@pytest.mark.parametrize("excuse", [{"stopped": {"node1"}}, {"outages": [(0.0, 1.0)]}], ids=["stopped", "outage"])
def test_a_call_that_the_pbx_did_not_have_may_end_as_an_error_without_a_cost(excuse: dict[str, Any]) -> None:
    failed = replace(CALL, id="late", sip_call_id="other", status="failed", ended_reason="error", cost=0.0)
    attempts = (*STORED.attempts, replace(STORED.attempts[0], delivery_id="other"))
    stored = replace(STORED, calls=(CALL, failed), deliveries={"call": 1, "late": 1}, attempts=attempts)
    requests = (REQUEST, replace(REQUEST, delivery_id="other", call_id="late"))
    history = replace(HISTORY, stored=stored, requests=requests)
    assert violations(replace(history, **excuse)) == []
    assert violations(history) == ["call late of node1 ended as error"]


def test_each_node_counts_its_own_calls_while_the_database_is_away() -> None:
    own, other = replace(HISTORY.seen[0], sip_call_id="own"), replace(HISTORY.seen[0], sip_call_id="b", node="node2")

    def of_ceiling(*seen: SeenCall, outages: Sequence[tuple[float, float]] = ((0.5, 1.5),)) -> list[str]:
        found = violations(replace(HISTORY, seen=seen, outages=outages))
        return [each for each in found if "at once" in each]

    assert of_ceiling(*HISTORY.seen, other) == []
    assert of_ceiling(*HISTORY.seen, own)
    assert of_ceiling(*HISTORY.seen, other, outages=())


def test_the_charge_of_a_call_may_be_corrected() -> None:
    note = "correction of call call, which was charged 2.5: inbound call"
    correction = BalanceChange(None, Decimal(-1), Decimal("6.5"), note)
    corrected = replace(STORED, balance=Decimal("6.5"), calls=(replace(CALL, cost=3.5),), changes=(CHARGE, correction))
    assert violations(replace(HISTORY, stored=corrected)) == []


@pytest.mark.parametrize(
    "fault",
    [
        Kill(9.5, 20.0, NODE1),
        Kill(9.5, 20.0, NODE1, resumed=True),
        Kill(8.0, 8.5, NODE1),
        Kill(8.0, 39.0, NODE2, resumed=True),
    ],
    ids=["the first was killed", "it was stopped", "it was killed while it sent", "the second was stopped before"],
)
def test_a_sender_that_had_a_fault_may_repeat_an_attempt_or_have_it_repeated(fault: Kill) -> None:
    assert violations(replace(HISTORY, requests=(REQUEST, AGAIN), faults=(fault,))) == []


@pytest.mark.parametrize(
    "fault",
    [
        Kill(9.5, 20.0, NODE2),
        Kill(9.5, 20.0, "10.0.0.3"),
        Kill(9.5, 20.0, "10.0.0.3", resumed=True),
        Kill(1.0, 7.5, NODE1),
        Kill(40.5, 50.0, NODE1, resumed=True),
    ],
    ids=["the second was killed", "another was killed", "another was stopped", "long before", "afterwards"],
)
def test_a_repeated_attempt_is_told_unless_its_sender_had_a_fault(fault: Kill) -> None:
    repeated = replace(HISTORY, requests=(REQUEST, AGAIN), faults=(fault,))
    assert violations(repeated) == ["event event: attempt 1 came twice without a kill between"]


BROKEN: dict[str, Callable[[], ClusterHistory]] = {
    "has not ended": lambda: with_stored(calls=(replace(CALL, has_ended=False),)),
    "stored 2 times for node1": lambda: with_stored(calls=(CALL, replace(CALL, id="other", cost=None))),
    "ended as error": lambda: with_stored(calls=(replace(CALL, ended_reason="error"),)),
    "is not stored": lambda: with_stored(calls=(replace(CALL, sip_call_id=None),)),
    "was ended by cluster": lambda: replace(HISTORY, seen=(replace(HISTORY.seen[0], ended_by="cluster"),)),
    "has 2 events": lambda: with_stored(deliveries={"call": 2}),
    "has 0 events": lambda: with_stored(deliveries={}),
    "1 events are pending": lambda: with_stored(pending=1),
    "came twice without a kill": lambda: replace(HISTORY, requests=(REQUEST, REQUEST)),
    "no webhook was received": lambda: replace(HISTORY, requests=()),
    "was charged 2 times": lambda: with_stored(changes=(CHARGE, CHARGE)),
    "cost 2.5, charged 0": lambda: with_stored(changes=()),
    "the balance after call": lambda: with_stored(changes=(replace(CHARGE, balance_after=Decimal(8)),)),
    "the balance is 8": lambda: with_stored(balance=Decimal(8)),
    "2 calls at once": lambda: replace(HISTORY, seen=(*HISTORY.seen, *HISTORY.seen)),
    "lease audit is held by a dead node": lambda: with_stored(holders={"audit": None}),
    "number user is bound at no live node": lambda: replace(HISTORY, bound={"user": set()}),
    "number user is bound at ['node1', 'node2']": lambda: replace(HISTORY, bound={"user": {"node1", "node2"}}),
}


@pytest.mark.parametrize("expected", BROKEN)
def test_a_broken_history_is_told(expected: str) -> None:
    assert any(expected in each for each in violations(BROKEN[expected]()))
