"""The outbox."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from storage import calls, webhook_deliveries
from storage.database import Database
from storage.webhook_deliveries import Delivery


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


def _delivery(conn: sa.Connection, organization_id: str, call_id: str, body: bytes) -> Delivery:
    return webhook_deliveries.add(
        conn,
        organization_id=organization_id,
        call_id=call_id,
        url="https://x",
        body=body,
        secret_encrypted="token",
    )


async def test_the_bytes_are_kept_as_they_were(database: Database, organization_id: str) -> None:
    made = await database.write(lambda conn: _event(conn, organization_id))
    assert await database.read(lambda conn: webhook_deliveries.due(conn, utc_now())) == [made]
    assert await database.read(webhook_deliveries.next_due_at) == made.created_at
    assert made.body == b"\x00\xff{}"
    assert "token" not in repr(made)


async def test_a_call_has_one_event(database: Database, organization_id: str) -> None:
    made = await database.write(lambda conn: _event(conn, organization_id))
    with pytest.raises(sa.exc.IntegrityError):
        await database.write(lambda conn: _delivery(conn, organization_id, made.call_id, b""))


async def test_attempts_lead_to_success_or_failure(database: Database, organization_id: str) -> None:
    made = await database.write(lambda conn: _event(conn, organization_id))
    now = utc_now()

    def attempt(conn: sa.Connection, succeeded: bool, again: datetime | None) -> tuple[int, str, str, datetime | None]:
        tried = webhook_deliveries.record_attempt(
            conn,
            made.id,
            succeeded=succeeded,
            response_status=200 if succeeded else None,
            response_body=None,
            error=None if succeeded else "refused",
            duration_ms=3,
            started_at=now,
            next_attempt_at=again,
        )
        delivery = webhook_deliveries.get(conn, made.id)
        assert delivery is not None
        assert webhook_deliveries.due(conn, now) == []
        return tried.attempt, tried.status, delivery.status, delivery.next_attempt_at

    tries = ((False, now + timedelta(minutes=1)), (True, now), (False, None))
    outcomes = [await database.write(partial(attempt, succeeded=succeeded, again=again)) for succeeded, again in tries]
    assert outcomes == [
        (1, "failed", "pending", now + timedelta(minutes=1)),
        (2, "succeeded", "succeeded", None),
        (3, "failed", "failed", None),
    ]
    attempts = await database.read(lambda conn: webhook_deliveries.attempts_of(conn, made.call_id))
    assert [each.attempt for each in attempts] == [1, 2, 3]
    assert await database.read(webhook_deliveries.next_due_at) is None
