"""The outbox of webhooks. A row is written in the transaction that ends the call and holds the exact bytes to send;
every attempt at sending is kept beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.rows import Shape

DeliveryStatus = Literal["pending", "succeeded", "failed"]


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One event for one receiver. `id` goes out as `X-Service-Delivery`; `secret_encrypted` is a `Secrets.encrypt`
    token; `attempts` counts those made by schedule; `next_attempt_at` is None once nothing more is due."""

    id: str
    organization_id: str
    call_id: str
    event: str
    url: str
    body: bytes = field(repr=False)
    secret_encrypted: str | None = field(repr=False)
    status: DeliveryStatus
    attempts: int
    next_attempt_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One sending. `duration_ms` is in ms; `error` says why there was no response."""

    id: str
    delivery_id: str
    attempt: int
    status: DeliveryStatus
    response_status: int | None
    response_body: str | None
    error: str | None
    duration_ms: int | None
    manual: bool
    created_at: datetime


_DELIVERY = Shape(Delivery, tables.webhook_deliveries)
_ATTEMPT = Shape(Attempt, tables.webhook_attempts)
_t = tables.webhook_deliveries
_a = tables.webhook_attempts


def add(
    conn: sa.Connection,
    *,
    organization_id: str,
    call_id: str,
    url: str,
    body: bytes,
    secret_encrypted: str | None,
    event: str = "call.completed",
) -> Delivery:
    """Put an event into the outbox, due at once. One per call and event: a second one is an integrity error."""
    at = utc_now()
    made = Delivery(
        id=str(uuid4()),
        organization_id=organization_id,
        call_id=call_id,
        event=event,
        url=url,
        body=body,
        secret_encrypted=secret_encrypted,
        status="pending",
        attempts=0,
        next_attempt_at=at,
        created_at=at,
    )
    conn.execute(sa.insert(_t).values(**made.__dict__))
    return made


def due(conn: sa.Connection, now: datetime, *, limit: int = 100) -> list[Delivery]:
    """The deliveries whose time has come, longest due first."""
    query = sa.select(*_DELIVERY.columns).where(_t.c.next_attempt_at <= now)
    rows = conn.execute(query.order_by(_t.c.next_attempt_at, _t.c.id).limit(limit))
    return [_DELIVERY.build(row) for row in rows]


def next_due_at(conn: sa.Connection) -> datetime | None:
    """When the next delivery is due; None when the outbox is empty."""
    at: datetime | None = conn.execute(sa.select(sa.func.min(_t.c.next_attempt_at))).scalar_one()
    return at


def get(conn: sa.Connection, delivery_id: str) -> Delivery | None:
    """By id."""
    row = conn.execute(sa.select(*_DELIVERY.columns).where(_t.c.id == delivery_id)).one_or_none()
    return None if row is None else _DELIVERY.build(row)


def record_attempt(
    conn: sa.Connection,
    delivery_id: str,
    *,
    succeeded: bool,
    response_status: int | None,
    response_body: str | None,
    error: str | None,
    duration_ms: int,
    started_at: datetime,
    next_attempt_at: datetime | None = None,
) -> Attempt:
    """Note an attempt that was made by schedule and when the next one is due (ignored after a success; None after a
    failure: it was the last)."""
    again = None if succeeded else next_attempt_at
    status: DeliveryStatus = "succeeded" if succeeded else "failed" if again is None else "pending"
    change = sa.update(_t).where(_t.c.id == delivery_id)
    change = change.values(attempts=_t.c.attempts + 1, next_attempt_at=again, status=status)
    number = conn.execute(change.returning(_t.c.attempts)).scalar_one()
    made = Attempt(
        id=str(uuid4()),
        delivery_id=delivery_id,
        attempt=number,
        status="succeeded" if succeeded else "failed",
        response_status=response_status,
        response_body=response_body,
        error=error,
        duration_ms=duration_ms,
        manual=False,
        created_at=started_at,
    )
    conn.execute(sa.insert(_a).values(**made.__dict__))
    return made


def attempts_of(conn: sa.Connection, call_id: str) -> list[Attempt]:
    """Every attempt for a call's events, oldest first."""
    joined = _a.join(_t, _t.c.id == _a.c.delivery_id)
    query = sa.select(*_ATTEMPT.columns).select_from(joined).where(_t.c.call_id == call_id)
    return [_ATTEMPT.build(row) for row in conn.execute(query.order_by(_a.c.created_at, _a.c.attempt))]
