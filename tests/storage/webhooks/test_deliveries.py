"""The webhook outbox: attempts, schedule, manual attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from storage.calls import calls
from storage.database.database import Database
from storage.tables.agent_fields import WebhookEvent
from storage.tables.webhooks import WebhookEndpointFields
from storage.webhooks import attempt_claims, deliveries, endpoints
from storage.webhooks.deliveries import Delivery, DeliveryAttempt, EventReceiver

MINUTE = timedelta(minutes=1)
SCHEDULED = 5


def _event(conn: sa.Connection, organization_id: str) -> Delivery:
    call = calls.create_inbound(
        conn,
        organization_id=organization_id,
        agent_id=organization_id,
        phone_number_id=organization_id,
        provider="sip",
        call_sid="x",
        customer_number="100",
    )
    return _delivery(conn, organization_id, call.id, b"\x00\xff{}")


async def next_due_at(database: Database) -> datetime | None:
    """When the first pending attempt is due."""
    found = [each.due_at for each in await database.read(attempt_claims.due_destinations)]
    return found[0] if found else None


def _delivery(conn: sa.Connection, organization_id: str, call_id: str, body: bytes) -> Delivery:
    return deliveries.add(
        conn,
        organization_id=organization_id,
        call_id=call_id,
        url="https://name:pass@x",
        body=body,
        secret_encrypted="token",
    )


@pytest.fixture
async def event(database: Database, organization_id: str) -> Delivery:
    return await database.write(lambda conn: _event(conn, organization_id))


Outbox = Callable[..., Any]


@pytest.fixture
def outbox(database: Database, event: Delivery) -> Outbox:
    """Calls a step on the event's attempts by its name: `await outbox("listed")`."""

    def listed(conn: sa.Connection) -> list[DeliveryAttempt]:
        found = deliveries.page(conn, event.call_id, limit=100, offset=0)
        assert found.total == len(found.items)
        return [each.attempt for each in found.items]

    def made(
        conn: sa.Connection,
        attempt: DeliveryAttempt,
        succeeded: bool,
        again: datetime | None = None,
        at: datetime | None = None,
    ) -> DeliveryAttempt:
        recorded = deliveries.record_attempt(
            conn,
            attempt,
            succeeded=succeeded,
            response_status=200 if succeeded else None,
            response_body=None,
            error=None if succeeded else "refused",
            duration_ms=3,
            started_at=at or utc_now(),
            next_attempt_at=again,
        )
        assert recorded is not None
        return recorded

    def waiting(conn: sa.Connection, within: timedelta = timedelta()) -> list[DeliveryAttempt]:
        due = deliveries.due_attempts(conn, utc_now() + within)
        assert {each.delivery.id for each in due} <= {event.id}
        return [each.attempt for each in due]

    def manual(conn: sa.Connection) -> DeliveryAttempt:
        return deliveries.add_manual_attempt(conn, event, scheduled=SCHEDULED)

    def status(conn: sa.Connection) -> str:
        found = deliveries.delivery_of_call(conn, event.call_id)
        assert found is not None
        return found.status

    steps: tuple[Callable[..., Any], ...] = (listed, made, waiting, manual, status)
    works = {each.__name__: each for each in steps}

    async def do(name: str, *arguments: Any, **named: Any) -> Any:
        return await database.write(lambda conn: works[name](conn, *arguments, **named))

    return do


async def test_the_body_is_stored_byte_for_byte(database: Database, event: Delivery) -> None:
    (due,) = await database.read(lambda conn: deliveries.due_attempts(conn, utc_now()))
    assert due.delivery == event
    assert await next_due_at(database) == event.created_at
    assert event.body == b"\x00\xff{}"
    for hidden in ("token", "name:pass", "xff"):
        assert hidden not in repr(due)


async def test_a_call_has_one_event_of_a_kind(database: Database, organization_id: str, event: Delivery) -> None:
    with pytest.raises(sa.exc.IntegrityError):
        await database.write(lambda conn: _delivery(conn, organization_id, event.call_id, b""))


async def test_an_unknown_call_has_no_event(database: Database, organization_id: str) -> None:
    assert await database.read(lambda conn: deliveries.delivery_of_call(conn, organization_id)) is None


async def test_the_first_attempt_is_pending_and_due_at_once(outbox: Outbox, event: Delivery) -> None:
    (attempt,) = await outbox("waiting")
    assert (attempt.attempt, attempt.status, attempt.manual) == (1, "pending", False)
    assert attempt.created_at == attempt.next_attempt_at == event.created_at
    assert (attempt.response_status, attempt.response_body, attempt.error, attempt.duration_ms) == (None,) * 4
    assert await outbox("listed") == [attempt]


async def test_scheduled_attempts_follow_failures_until_a_success(outbox: Outbox, database: Database) -> None:
    (first,) = await outbox("waiting")
    again = utc_now() + MINUTE
    failed = await outbox("made", first, False, again)
    assert (failed.id, failed.status, failed.error, failed.duration_ms) == (first.id, "failed", "refused", 3)
    assert failed.next_attempt_at == again
    assert await outbox("waiting") == []
    assert await next_due_at(database) == again
    (second,) = await outbox("waiting", within=MINUTE)
    assert (second.attempt, second.status, second.next_attempt_at) == (2, "pending", again)
    assert await outbox("listed") == [second, failed]
    assert await outbox("status") == "pending"
    succeeded = await outbox("made", second, True, again)
    assert (succeeded.id, succeeded.status, succeeded.next_attempt_at) == (second.id, "succeeded", None)
    assert await outbox("listed") == [succeeded, failed]
    assert await outbox("status") == "succeeded"
    assert await next_due_at(database) is None


async def test_the_last_failed_attempt_fails_the_delivery(outbox: Outbox, database: Database) -> None:
    (only,) = await outbox("waiting")
    failed = await outbox("made", only, False)
    assert (failed.status, failed.next_attempt_at) == ("failed", None)
    assert await outbox("status") == "failed"
    assert await next_due_at(database) is None


async def test_attempts_of_the_same_millisecond_are_listed_newest_first(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = utc_now()
    monkeypatch.setattr(deliveries, "utc_now", lambda: at)
    (first,) = await outbox("waiting")
    failed = await outbox("made", first, False, at, at=at)
    second, listed = await outbox("listed")
    assert listed == failed
    assert (second.attempt, second.created_at - failed.created_at) == (2, timedelta(milliseconds=1))


async def test_a_manual_attempt_is_due_at_once_and_numbered_after_the_schedule(outbox: Outbox) -> None:
    (first,) = await outbox("waiting")
    manual = await outbox("manual")
    assert (manual.attempt, manual.status, manual.manual) == (SCHEDULED + 1, "pending", True)
    assert manual.next_attempt_at == manual.created_at
    assert sorted(each.attempt for each in await outbox("waiting")) == [1, SCHEDULED + 1]
    assert (await outbox("manual")).attempt == SCHEDULED + 2
    await outbox("made", first, False, utc_now() + MINUTE)
    assert sorted(each.attempt for each in await outbox("listed")) == [1, 2, SCHEDULED + 1, SCHEDULED + 2]


@pytest.mark.parametrize("succeeded", [True, False])
async def test_manual_attempts_after_the_schedule_continue_its_numbers(outbox: Outbox, succeeded: bool) -> None:
    (only,) = await outbox("waiting")
    await outbox("made", only, succeeded)
    assert [(await outbox("manual")).attempt for _ in range(2)] == [2, 3]


async def test_a_failed_manual_attempt_is_not_retried_and_keeps_the_schedule(outbox: Outbox) -> None:
    (first,) = await outbox("waiting")
    again = utc_now() + MINUTE
    await outbox("made", first, False, again)
    failed = await outbox("made", await outbox("manual"), False, utc_now())
    assert (failed.status, failed.next_attempt_at) == ("failed", None)
    assert await outbox("waiting") == []
    assert [each.attempt for each in await outbox("waiting", within=MINUTE)] == [2]
    assert await outbox("status") == "pending"


async def test_a_manual_success_ends_the_schedule(outbox: Outbox, database: Database) -> None:
    (first,) = await outbox("waiting")
    await outbox("made", first, False, utc_now() + MINUTE)
    manual = await outbox("manual")
    also_asked_for = await outbox("manual")
    await outbox("made", manual, True)
    assert await outbox("status") == "succeeded"
    assert [each.attempt for each in await outbox("waiting", within=MINUTE)] == [also_asked_for.attempt]
    told = {each.attempt: each.next_attempt_at for each in await outbox("listed")}
    assert told == {1: None, manual.attempt: None, also_asked_for.attempt: also_asked_for.next_attempt_at}
    await outbox("made", also_asked_for, False)
    assert await outbox("status") == "succeeded", "an event that was received stays received"


@pytest.mark.parametrize("succeeded", [True, False])
async def test_an_attempt_under_way_during_a_success_is_listed(
    outbox: Outbox, database: Database, succeeded: bool
) -> None:
    (first,) = await outbox("waiting")
    await outbox("made", await outbox("manual"), True)
    assert [each.manual for each in await outbox("listed")] == [True]
    late = await outbox("made", first, succeeded, utc_now() + MINUTE)
    assert (late.status, late.next_attempt_at) == ("succeeded" if succeeded else "failed", None)
    assert {each.id for each in await outbox("listed")} > {late.id}
    assert await outbox("status") == "succeeded"
    assert await next_due_at(database) is None


async def test_attempts_are_listed_in_pages(outbox: Outbox, database: Database, event: Delivery) -> None:
    for _ in range(4):
        await outbox("manual")
    whole = await outbox("listed")
    assert len(whole) == 5
    look = partial(deliveries.page, call_id=event.call_id, limit=2)
    for offset in (0, 2, 4, 6):
        found = await database.read(lambda conn, at=offset: look(conn, offset=at))  # type: ignore[misc]
        assert ([each.attempt for each in found.items], found.total) == (whole[offset : offset + 2], 5)


async def _put_call(database: Database, organization_id: str, *events: WebhookEvent) -> list[Delivery]:
    """Put events of one call into the outbox, in this order."""

    def put(conn: sa.Connection) -> list[Delivery]:
        call = calls.create_inbound(
            conn, organization_id=organization_id, agent_id=organization_id, phone_number_id=organization_id,
            provider="sip", call_sid="y", customer_number="100",
        )  # fmt: skip
        return [
            deliveries.add(
                conn, organization_id=organization_id, call_id=call.id, url="https://x/", body=b"{}",
                secret_encrypted=None, event=event,
            )
            for event in events
        ]  # fmt: skip

    return await database.write(put)


async def test_only_an_overdue_call_completed_comes_before_earlier_events(
    database: Database, organization_id: str
) -> None:
    *_, completed = await _put_call(database, organization_id, "call.started", "call.answered", "call.completed")
    now = completed.created_at + MINUTE

    async def due(overdue_at: datetime | None) -> list[str]:
        found = await database.read(lambda conn: deliveries.due_attempts(conn, now, overdue_at=overdue_at))
        return sorted(each.delivery.event for each in found)

    due_at = await next_due_at(database)
    assert due_at is not None
    assert await due(None) == ["call.started"]
    assert await due(due_at - timedelta(milliseconds=1)) == ["call.started"]
    assert await due(completed.created_at) == ["call.completed", "call.started"]


async def test_an_event_for_many_receivers_takes_three_statements(
    database: Database, organization_id: str, event: Delivery
) -> None:
    receivers = [EventReceiver(f"https://{each}.test/") for each in range(50)]

    def put(conn: sa.Connection) -> tuple[list[Delivery], list[str]]:
        run: list[str] = []
        sa.event.listen(conn, "before_cursor_execute", lambda *arguments: run.append(arguments[2]))
        made = endpoints_of(conn, organization_id, receivers)
        run.clear()
        stored = deliveries.add_all(
            conn, made, organization_id=organization_id, call_id=event.call_id, body=b"{}", event="call.started"
        )
        return stored, run

    stored, statements = await database.write(put)
    assert [each.url for each in stored] == [each.url for each in receivers]
    assert len({each.id for each in stored}) == 50
    assert len(statements) == 3
    due = await database.read(lambda conn: deliveries.due_attempts(conn, utc_now() + MINUTE))
    assert {each.delivery.id for each in due} == {event.id, *(each.id for each in stored)}


def endpoints_of(conn: sa.Connection, organization_id: str, receivers: Sequence[EventReceiver]) -> list[EventReceiver]:
    """These receivers as endpoints."""
    return [
        replace(each, endpoint_id=endpoints.create(conn, organization_id, WebhookEndpointFields(url=each.url)).id)
        for each in receivers
    ]
