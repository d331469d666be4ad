"""What must hold after any faults of a cluster, once its calls have ended: compares what the database stores with what
the PBX, the registrar and the webhook receiver have seen."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import sqlalchemy as sa

from bench.webhooks import invariants as webhook_invariants
from bench.webhooks.faulty_receiver import ReceivedRequest
from bench.webhooks.invariants import DeliveryHistory, Kill, RecordedAttempt
from storage import tables
from storage.nodes import nodes

STORED_S: Final = 10.0
"""The time within which the calls of an outage of the database are stored after it."""


@dataclass(frozen=True)
class StoredCall:
    """A call in the database."""

    id: str
    sip_call_id: str | None
    node: str | None
    status: str
    ended_reason: str | None
    has_ended: bool
    cost: float | None


@dataclass(frozen=True)
class BalanceChange:
    """A change of the balance, in the order of the changes."""

    call_id: str | None
    amount: Decimal
    balance_after: Decimal
    note: str | None = None

    @property
    def call(self) -> str | None:
        """The call that is charged, or whose charge is corrected because its true end replaced that of a survivor."""
        corrected = re.match("correction of call ([^ ,]+),", self.note or "")
        return corrected[1] if corrected else self.call_id


@dataclass(frozen=True)
class StoredState:
    """What the database stores of an organization, and of the nodes. `deliveries`: the numbers of events of each
    call; `holders`: the node that holds each lease, "" for one that is free, and None if that node is down."""

    calls: Sequence[StoredCall]
    deliveries: Mapping[str, int]
    pending: int
    attempts: Sequence[RecordedAttempt]
    balance: Decimal
    changes: Sequence[BalanceChange]
    holders: Mapping[str, str | None]


@dataclass(frozen=True)
class SeenCall:
    """An answered call as the PBX saw it; times are of the monotonic clock, s. `until_s`: its end, or the first fault
    of its node, from which on the cluster may take it for ended."""

    sip_call_id: str
    node: str
    answered_s: float
    until_s: float
    ended_by: str
    disturbed: bool
    """Its node was killed, cut off or stopped during the call."""


@dataclass(frozen=True)
class ClusterHistory:
    """Everything that was seen. `faults`: the times in which senders of webhooks were killed, stopped or cut off,
    so that their attempts may come twice, which an outage of the database does not excuse;
    `bound`: the live nodes at which each number is bound."""

    stored: StoredState
    seen: Sequence[SeenCall]
    requests: Sequence[ReceivedRequest]
    faults: Sequence[Kill]
    retry_delays_s: Sequence[float]
    webhook_timeout_s: float
    bound: Mapping[str, Collection[str]]
    start_balance: Decimal
    max_calls: int
    rejected_reasons: Collection[str] = ()
    """Reasons with which no call may have ended. One that was not answered for the PBX may, without a cost: at nodes
    that were `stopped`, because such a node answers a call late that Kamailio has given to another one, and gets no
    ACK; and with `outages`, because a commit may have no outcome."""
    stopped: Collection[str] = ()
    outages: Sequence[tuple[float, float]] = ()
    """The times in which the database was away."""


def read_state(conn: sa.Connection, organization_id: str) -> StoredState:
    """Returns what is stored, in one transaction."""
    c, d, a, b = tables.calls.c, tables.webhook_deliveries.c, tables.webhook_attempts.c, tables.balance_changes.c
    columns = (c.id, c.call_sid, c.node, c.status, c.ended_reason, c.ended_at.is_not(None), c.cost)
    rows = conn.execute(sa.select(*columns).where(c.organization_id == organization_id))
    attempts = conn.execute(
        sa.select(a.delivery_id, a.attempt, a.status, sa.type_coerce(a.created_at, sa.BigInteger), a.duration_ms)
        .where(a.status != "pending")
    )  # fmt: skip
    changes = sa.select(b.call_id, b.amount, b.balance_after, b.note).where(b.organization_id == organization_id)
    live = {each.instance: each.name for each in nodes.all_of(conn) if not each.is_down}
    deliveries = sa.select(d.call_id, sa.func.count()).group_by(d.call_id)
    leases = conn.execute(sa.select(tables.leases.c.name, tables.leases.c.instance))
    return StoredState(
        calls=[StoredCall(*row) for row in rows],
        deliveries={row[0]: row[1] for row in conn.execute(deliveries)},
        pending=conn.execute(sa.select(sa.func.count()).where(d.status == "pending")).scalar_one(),
        attempts=[RecordedAttempt(*row) for row in attempts],
        balance=conn.execute(
            sa.select(tables.organizations.c.balance).where(tables.organizations.c.id == organization_id)
        ).scalar_one(),
        changes=[BalanceChange(*row) for row in conn.execute(changes.order_by(b.id))],
        holders={name: live.get(instance) if instance else "" for name, instance in leases},
    )


def violations(history: ClusterHistory) -> list[str]:
    """The violated invariants, in words."""
    return [
        *_call_violations(history),
        *_webhook_violations(history),
        *_balance_violations(history),
        *_ceiling_violations(history),
        *_lease_violations(history),
    ]


def _call_violations(history: ClusterHistory) -> Iterator[str]:
    """Each answered call is stored once, has ended, and was not ended by the cluster without a fault of its node. A
    node that hung may have a call as well that Kamailio gave to the next one meanwhile."""
    stored = {(each.sip_call_id, each.node): each for each in history.stored.calls}
    counts = Counter((each.sip_call_id, each.node) for each in history.stored.calls if each.sip_call_id is not None)
    yield from (f"call {key[0]} is stored {count} times for {key[1]}" for key, count in counts.items() if count > 1)
    for each in history.stored.calls:
        if not each.has_ended:
            yield f"call {each.id} of {each.node} is {each.status} and has not ended"
        is_answered = any((seen.sip_call_id, seen.node) == (each.sip_call_id, each.node) for seen in history.seen)
        is_excused = bool(history.outages) or each.node in history.stopped
        if each.ended_reason in history.rejected_reasons and (is_answered or each.cost or not is_excused):
            yield f"call {each.id} of {each.node} ended as {each.ended_reason}"
    known = {each.sip_call_id for each in history.stored.calls}
    for seen in history.seen:
        call = stored.get((seen.sip_call_id, seen.node))
        if call is None and not (
            seen.disturbed and seen.sip_call_id in known
        ):  # a survivor may have taken its end over
            yield f"call {seen.sip_call_id} at {seen.node} was answered and is not stored"
            continue
        reason = None if call is None else call.ended_reason
        if not seen.disturbed and (seen.ended_by != "pbx" or reason != "customer_ended"):
            yield f"call {seen.sip_call_id} at {seen.node} was ended by {seen.ended_by}, stored as {reason}"


def _webhook_violations(history: ClusterHistory) -> Iterator[str]:
    """Each ended call has one event, which arrives, in at most five attempts, none of them early or for nothing."""
    ended = frozenset(each.id for each in history.stored.calls if each.has_ended)
    for call_id in sorted(ended):
        if history.stored.deliveries.get(call_id, 0) != 1:
            yield f"call {call_id} has {history.stored.deliveries.get(call_id, 0)} events"
    if history.stored.pending:
        yield f"{history.stored.pending} events are pending"
    deliveries = DeliveryHistory(
        len(ended),
        ended,
        history.requests,
        history.faults,
        history.stored.attempts,
        history.retry_delays_s,
        history.webhook_timeout_s,
    )
    yield from webhook_invariants.violations(deliveries)


def _balance_violations(history: ClusterHistory) -> Iterator[str]:
    """Each call with a cost is charged once, or that and a correction, and the balance is what is left."""
    costs = {each.id: Decimal(str(each.cost)) for each in history.stored.calls if each.cost}
    times = Counter(each.call_id for each in history.stored.changes if each.call_id is not None)
    yield from (f"call {each} was charged {count} times" for each, count in times.items() if count > 1)
    charged: defaultdict[str, Decimal] = defaultdict(Decimal)
    balance = history.start_balance
    for change in history.stored.changes:
        balance += change.amount
        if change.balance_after != balance:
            yield f"the balance after call {change.call} is {change.balance_after}, not {balance}"
        if change.call is not None:
            charged[change.call] -= change.amount
    for call_id in sorted(costs.keys() | charged.keys()):
        if charged[call_id] != costs.get(call_id, 0):
            yield f"call {call_id} cost {costs.get(call_id)}, charged {charged[call_id]}"
    if history.stored.balance != history.start_balance - sum(costs.values()):
        yield f"the balance is {history.stored.balance}, the calls cost {sum(costs.values())}"


def _ceiling_violations(history: ClusterHistory) -> Iterator[str]:
    """No call is taken above the ceiling of the organization. While the database is away each node counts its own."""
    for call in history.seen:
        is_away = any(began_s <= call.answered_s <= ended_s + STORED_S for began_s, ended_s in history.outages)
        counted = [each for each in history.seen if each.node == call.node or not is_away]
        at_once = sum(each.answered_s <= call.answered_s < each.until_s for each in counted)
        if at_once > history.max_calls:
            yield f"{at_once} calls at once, {history.max_calls} are permitted"


def _lease_violations(history: ClusterHistory) -> Iterator[str]:
    """Each lease is held by a live node, and each number is bound at one live node."""
    yield from (f"lease {name} is held by a dead node" for name, node in history.stored.holders.items() if node is None)
    for user, bound in history.bound.items():
        if len(bound) != 1:
            yield f"number {user} is bound at {sorted(bound) or 'no live node'}"
