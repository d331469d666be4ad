"""The outbox."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from storage import calls, webhook_deliveries
from storage.database import Database
from storage.webhook_deliveries import Delivery


async def _event(database: Database, organization_id: str) -> Delivery:
    async with database.write() as conn:
        call = await calls.create_inbound(
            conn,
            organization_id=organization_id,
            agent_id=organization_id,
            phone_number_id=organization_id,
            provider="sip",
            call_sid="x",
            customer_number="100",
        )
        return await webhook_deliveries.add(
            conn,
            organization_id=organization_id,
            call_id=call.id,
            url="https://x",
            body=b"\x00\xff{}",
            secret_encrypted="token",
        )


async def test_the_bytes_are_kept_as_they_were(database: Database, organization_id: str) -> None:
    made = await _event(database, organization_id)
    async with database.read() as conn:
        assert await webhook_deliveries.due(conn, utc_now()) == [made]
        assert await webhook_deliveries.next_due_at(conn) == made.created_at
    assert made.body == b"\x00\xff{}"
    assert "token" not in repr(made)


async def test_a_call_has_one_event(database: Database, organization_id: str) -> None:
    made = await _event(database, organization_id)
    with pytest.raises(sa.exc.IntegrityError):
        async with database.write() as conn:
            await webhook_deliveries.add(
                conn,
                organization_id=organization_id,
                call_id=made.call_id,
                url="https://x",
                body=b"",
                secret_encrypted=None,
            )


async def test_attempts_lead_to_success_or_failure(database: Database, organization_id: str) -> None:
    made = await _event(database, organization_id)
    now = utc_now()
    outcomes = []
    for succeeded, again in ((False, now + timedelta(minutes=1)), (True, now), (False, None)):
        async with database.write() as conn:
            attempt = await webhook_deliveries.record_attempt(
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
            delivery = await webhook_deliveries.get(conn, made.id)
            assert delivery is not None
            outcomes.append((attempt.attempt, attempt.status, delivery.status, delivery.next_attempt_at))
            waiting = await webhook_deliveries.due(conn, now)
            assert waiting == []
    assert outcomes == [
        (1, "failed", "pending", now + timedelta(minutes=1)),
        (2, "succeeded", "succeeded", None),
        (3, "failed", "failed", None),
    ]
    async with database.read() as conn:
        assert [each.attempt for each in await webhook_deliveries.attempts_of(conn, made.call_id)] == [1, 2, 3]
        assert await webhook_deliveries.next_due_at(conn) is None
