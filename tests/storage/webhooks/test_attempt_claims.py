"""Claims on delivery attempts: shares, expiry, order, use of indexes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.calls import calls
from storage.database.database import Database
from storage.nodes import nodes
from storage.nodes.nodes import Node
from storage.webhooks import attempt_claims, deliveries
from storage.webhooks.deliveries import Delivery, DeliveryAttempt, destination_key, destination_of

SECOND = timedelta(seconds=1)
A, B = "a.example:443", "b.example:80"
ADDRESSES = {A: "https://a.example/hook", B: "http://b.example/hook"}


@pytest.fixture
async def call_id(database: Database, organization_id: str) -> str:
    def create(conn: sa.Connection) -> str:
        return calls.create_inbound(
            conn,
            organization_id=organization_id,
            agent_id=organization_id,
            phone_number_id=organization_id,
            provider="sip",
            call_sid="x",
            customer_number="100",
        ).id

    return await database.write(create)


def host(lane: str) -> str:
    """The host and port of a destination key."""
    return lane.split()[1]


class Outbox:
    """Events of one call, any number."""

    def __init__(self, database: Database, organization_id: str, call_id: str) -> None:
        self.database, self._organization_id, self._call_id = database, organization_id, call_id
        self._made = 0

    async def put(self, destination: str, count: int = 1) -> list[Delivery]:
        def add(conn: sa.Connection) -> list[Delivery]:
            return [self._add(conn, ADDRESSES[destination]) for _ in range(count)]

        return await self.database.write(add)

    def _add(self, conn: sa.Connection, url: str) -> Delivery:
        self._made += 1
        return deliveries.add(
            conn, organization_id=self._organization_id, call_id=self._call_id, url=f"{url}?{self._made}", body=b"{}",
            secret_encrypted=None, event="call.transferred", subject=str(self._made),
        )  # fmt: skip

    async def claim(self, claimant: str, at: datetime | None = None, **shares: int) -> list[DeliveryAttempt]:
        """Claim for a second; `a`, `b`: the share of each destination."""
        now = at or utc_now()
        names = {"a": A, "b": B}
        wanted = {
            destination_key(self._organization_id, ADDRESSES[names[name]], "call.transferred"): share
            for name, share in shares.items()
        }
        due = await self.database.write(
            lambda conn: attempt_claims.claim(conn, claimant, wanted, now=now, until=now + SECOND)
        )
        return [each.attempt for each in due]

    async def waiting(self) -> list[str]:
        return [host(each.destination) for each in await self.database.read(attempt_claims.due_destinations)]

    async def record(self, attempt: DeliveryAttempt, claimant: str | None, succeeded: bool) -> DeliveryAttempt | None:
        return await self.database.write(
            lambda conn: deliveries.record_attempt(
                conn, attempt, succeeded=succeeded, response_status=200 if succeeded else 500, response_body=None,
                error=None, duration_ms=1, started_at=utc_now(), next_attempt_at=utc_now(), claimant=claimant,
            )
        )  # fmt: skip

    async def attempts(self) -> list[tuple[int, str]]:
        """Number and status of every attempt."""
        found = await self.database.read(lambda conn: deliveries.page(conn, self._call_id, limit=99, offset=0))
        return sorted((each.attempt.attempt, each.attempt.status) for each in found.items)

    async def release_expired(self, now: datetime, under_way: tuple[str, ...] = ()) -> int:
        return await self.database.write(lambda conn: attempt_claims.release_expired(conn, now, under_way=under_way))


@pytest.fixture
def outbox(database: Database, organization_id: str, call_id: str) -> Outbox:
    return Outbox(database, organization_id, call_id)


@pytest.mark.parametrize(
    ("url", "destination"),
    [
        ("https://Receiver.Example/hook?x=1", "receiver.example:443"),
        ("http://receiver.example/hook", "receiver.example:80"),
        ("https://name:pass@receiver.example:8443", "receiver.example:8443"),
        ("https://[2001:db8::1]:8443/", "2001:db8::1:8443"),
        ("https://x:port/", ""),
        ("https://[::1", ""),
        ("/hook", ""),
    ],
)
def test_a_destination_is_host_and_port(url: str, destination: str) -> None:
    assert destination_of(url) == destination


async def test_a_claimed_attempt_is_not_claimed_again(outbox: Outbox) -> None:
    await outbox.put(A, 3)
    first = await outbox.claim("one", a=2)
    second = await outbox.claim("two", a=2)
    assert (len(first), len(second)) == (2, 1)
    assert not {each.id for each in first} & {each.id for each in second}
    assert await outbox.claim("three", a=2) == []
    assert await outbox.waiting() == []


async def test_a_claim_takes_a_share_of_each_destination_longest_due_first(outbox: Outbox) -> None:
    oldest, older, newest = await outbox.put(A, 3)
    (other,) = await outbox.put(B)
    attempts = tables.webhook_attempts
    long_due = sa.update(attempts).where(attempts.c.delivery_id.in_((oldest.id, older.id)))
    at = newest.created_at - SECOND
    await outbox.database.write(lambda conn: conn.execute(long_due.values(next_attempt_at=at)))
    claimed = await outbox.claim("one", a=2, b=5)
    assert {each.delivery_id for each in claimed} == {oldest.id, older.id, other.id}
    assert {host(each.destination) for each in claimed} == {A, B}


async def test_due_destinations_are_unique_with_their_earliest_time(outbox: Outbox, database: Database) -> None:
    (first, *_) = await outbox.put(B, 3)
    await outbox.put(A, 3)
    waiting = await database.read(attempt_claims.due_destinations)
    assert {host(each.destination) for each in waiting} == {A, B}
    assert {host(each.destination): each.due_at for each in waiting}[B] == first.created_at
    assert waiting == sorted(waiting, key=lambda each: (each.due_at, each.destination))


async def test_manual_attempts_are_claimed_before_scheduled_ones(outbox: Outbox) -> None:
    *_, last = await outbox.put(A, 5)
    asked = await outbox.database.write(lambda conn: deliveries.add_manual_attempt(conn, last, scheduled=5))
    assert [each.id for each in await outbox.claim("one", a=1)] == [asked.id]
    assert len(await outbox.claim("two", a=9)) == 5


async def test_a_destination_with_manual_attempts_only_is_due(outbox: Outbox) -> None:
    (event,) = await outbox.put(A)
    (first,) = await outbox.claim("one", a=1)
    await outbox.record(first, "one", succeeded=True)
    assert await outbox.waiting() == []
    await outbox.database.write(lambda conn: deliveries.add_manual_attempt(conn, event, scheduled=5))
    assert await outbox.waiting() == [A]


@pytest.mark.parametrize("succeeded", [True, False])
async def test_an_attempt_whose_call_was_deleted_is_not_recorded(outbox: Outbox, call_id: str, succeeded: bool) -> None:
    await outbox.put(A)
    (first,) = await outbox.claim("one", a=1)
    deleted = sa.delete(tables.calls).where(tables.calls.c.id == call_id)
    await outbox.database.write(lambda conn: conn.execute(deleted).close())
    assert await outbox.record(first, "one", succeeded=succeeded) is None
    assert await outbox.attempts() == []


async def test_an_attempt_is_not_claimed_before_it_is_due(outbox: Outbox) -> None:
    await outbox.put(A)
    assert await outbox.claim("one", at=utc_now() - SECOND, a=1) == []
    assert await outbox.waiting() == [A]


@pytest.mark.sqlite
async def test_due_destinations_and_claims_use_indexes_only(outbox: Outbox, database: Database) -> None:
    """So that thousands of events for one receiver do not slow them down."""
    statements: list[str] = []

    def plan(conn: sa.Connection) -> list[str]:
        conn.connection.dbapi_connection.set_trace_callback(statements.append)  # type: ignore[union-attr]
        attempt_claims.due_destinations(conn)
        deliveries.due_attempts(conn, utc_now(), destination=A, manual=False, limit=3)
        attempt_claims.expired_claims(conn, utc_now())
        conn.connection.dbapi_connection.set_trace_callback(None)  # type: ignore[union-attr]
        return [row[3] for each in statements for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}")]

    await outbox.put(A, 5)
    steps = await database.read(plan)
    used = [step for step in steps if "webhook_attempts" in step]
    assert len(statements) == 3
    assert len(used) >= 5
    assert all(step.startswith("SEARCH ") and "INDEX ix_webhook_attempts_" in step for step in used), used
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps


async def test_an_expired_claim_is_released_unless_its_attempt_is_under_way(outbox: Outbox) -> None:
    await outbox.put(A, 2)
    now = utc_now()
    late, dead = await outbox.claim("one", at=now, a=2)
    assert await outbox.release_expired(now + SECOND / 2) == 0
    assert await outbox.release_expired(now + SECOND, under_way=(late.id,)) == 1
    assert [each.id for each in await outbox.claim("two", a=2)] == [dead.id]


async def test_release_all_frees_every_claim(outbox: Outbox, database: Database) -> None:
    await outbox.put(A, 2)
    await outbox.claim("dead", a=1)
    assert await database.write(attempt_claims.release_all) == 1
    assert await database.write(attempt_claims.release_all) == 0
    assert len(await outbox.claim("next", a=5)) == 2


async def test_recorded_attempts_and_their_successors_are_unclaimed(outbox: Outbox) -> None:
    await outbox.put(A)
    (first,) = await outbox.claim("one", a=1)
    assert await outbox.record(first, "one", succeeded=False)
    (second,) = await outbox.claim("two", at=utc_now() + SECOND, a=1)
    assert (second.attempt, host(second.destination)) == (2, A)


@pytest.mark.parametrize("recorded", [False, True], ids=["still under way there", "made there"])
async def test_a_failure_of_an_attempt_that_another_claimant_took_over_is_not_recorded(
    outbox: Outbox, recorded: bool
) -> None:
    await outbox.put(A)
    now = utc_now()
    (slow,) = await outbox.claim("slow", at=now, a=1)
    await outbox.release_expired(now + SECOND)
    (taken,) = await outbox.claim("other", a=1)
    assert taken.id == slow.id
    if recorded:
        await outbox.record(taken, "other", succeeded=False)
    assert await outbox.record(slow, "slow", succeeded=False) is None
    if not recorded:
        await outbox.record(taken, "other", succeeded=False)
    assert await outbox.attempts() == [(1, "failed"), (2, "pending")]


async def test_a_success_is_recorded_for_any_claimant(outbox: Outbox, call_id: str) -> None:
    await outbox.put(A)
    now = utc_now()
    (slow,) = await outbox.claim("slow", at=now, a=1)
    await outbox.release_expired(now + SECOND)
    (taken,) = await outbox.claim("other", a=1)
    await outbox.record(taken, "other", succeeded=False)
    assert await outbox.record(slow, "slow", succeeded=True)
    assert await outbox.attempts() == [(1, "succeeded")]


async def test_a_failure_after_an_expired_claim_is_recorded_unless_taken_over(outbox: Outbox) -> None:
    await outbox.put(A)
    now = utc_now()
    (slow,) = await outbox.claim("slow", at=now, a=1)
    await outbox.release_expired(now + SECOND)
    assert await outbox.record(slow, "slow", succeeded=False)
    assert await outbox.attempts() == [(1, "failed"), (2, "pending")]


async def test_the_claims_of_a_node_that_is_down_or_has_started_again_are_free_before_they_expire(
    database: Database, organization_id: str, call_id: str
) -> None:
    if database.is_sqlite:
        pytest.skip("one server")
    outbox = Outbox(database, organization_id, call_id)
    await outbox.put(A, 3)
    now = utc_now()
    beats = {name: Node(name, f"{name}-first", None, "1", "up", 0, 9, now, now) for name in ("a", "b")}

    async def beat(node: Node, **changes: Any) -> None:
        await database.write(partial(nodes.store_heartbeat, node=replace(node, **changes)))

    for each in beats.values():
        await beat(each)
    (of_a,), (of_b,) = [await outbox.claim(attempt_claims.claimant_of(f"{name}-first"), now, a=1) for name in beats]
    assert await outbox.claim("1-abc", now, a=1), "by a node of an older version"
    expired = partial(attempt_claims.expired_claims, now=now, dead_until=now + SECOND)
    assert await database.read(expired) == []
    await beat(beats["a"], state="down")
    assert await database.read(expired) == [of_a.id]
    assert await database.read(partial(expired, dead_until=now + SECOND / 2)) == [], "it may be under way"
    assert await database.read(partial(expired, dead_until=None)) == [], "after an outage it is not known who is down"
    await beat(beats["a"])
    assert await database.read(expired) == [], "its heartbeats have come again"
    await beat(beats["a"], state="down")
    await beat(beats["b"], state="down")
    await beat(beats["b"], instance="b-second")
    assert set(await database.read(expired)) == {of_a.id, of_b.id}
    release = partial(attempt_claims.release_expired, now=now, under_way=[of_b.id], dead_until=now + SECOND)
    assert await database.write(release) == 1
    assert [each.id for each in await outbox.claim("c", a=9)] == [of_a.id]


async def test_an_attempt_that_was_recorded_since_it_was_read_is_not_claimed(
    database: Database, organization_id: str, call_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(database, organization_id, call_id)
    await outbox.put(A)
    read = deliveries.due_attempts
    stale = await database.read(partial(read, now=utc_now()))
    await outbox.record(stale[0].attempt, None, succeeded=True)
    monkeypatch.setattr(deliveries, "due_attempts", lambda *_, manual=None, **__: [] if manual else stale)
    assert await outbox.claim("c", a=1) == []
