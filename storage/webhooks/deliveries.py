"""The outbox of webhooks. An event is written in the transaction that ends its call and holds the exact bytes to send.
An attempt at sending it is a row from the moment it is due at some time until long after it was made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal
from urllib.parse import urlsplit
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.tables.row_mapping import ResultPage, RowMapping

DeliveryStatus = Literal["pending", "succeeded", "failed"]
CALL_COMPLETED: Final = "call.completed"
ONE_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One event for one receiver. `id` goes out as `X-Service-Delivery`; `secret_encrypted` is a `Secrets.encrypt`
    token. `status` is succeeded after any success, failed when the schedule ended without one."""

    id: str
    organization_id: str
    call_id: str
    event: str
    url: str = field(repr=False)
    body: bytes = field(repr=False)
    secret_encrypted: str | None = field(repr=False)
    status: DeliveryStatus
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class DeliveryAttempt:
    """One sending. `attempt` is its number, 1, 2, ... by schedule; `manual`: somebody asked for it. Pending, it waits
    for `next_attempt_at` since `created_at`. Made, it was sent at `created_at`, took `duration_ms`, `error` says why
    there was no response, and `next_attempt_at` is when the one after it follows, if one does. `destination` is the
    lane: `storage.webhooks.deliveries.lane_of` the event's address."""

    id: str
    delivery_id: str
    attempt: int
    status: DeliveryStatus
    response_status: int | None = None
    response_body: str | None = None
    error: str | None = None
    duration_ms: int | None = None
    manual: bool
    created_at: datetime
    next_attempt_at: datetime | None
    destination: str


@dataclass(frozen=True)
class DueAttempt:
    """An attempt whose time has come, and what it sends."""

    attempt: DeliveryAttempt
    delivery: Delivery


_DELIVERY = RowMapping(Delivery, tables.webhook_deliveries)
_ATTEMPT = RowMapping(DeliveryAttempt, tables.webhook_attempts)
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
    event: str = CALL_COMPLETED,
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
        created_at=at,
    )
    conn.execute(sa.insert(_t).values(**made.__dict__))
    _add_attempt(conn, made.id, lane_of(organization_id, url), number=1, manual=False, created_at=at, due_at=at)
    return made


def add_manual(conn: sa.Connection, delivery: Delivery, *, scheduled: int) -> DeliveryAttempt:
    """Send an event once more, at once. The attempt's number follows on the highest one; while the schedule, of
    `scheduled` attempts, goes on, also on those that it may still use."""
    rows = conn.execute(sa.select(_a.c.attempt, _a.c.status, _a.c.manual).where(_a.c.delivery_id == delivery.id)).all()
    goes_on = any(row.status == "pending" and not row.manual for row in rows)
    highest = max([scheduled if goes_on else 0, *(row.attempt for row in rows)])
    at, where = utc_now(), lane_of(delivery.organization_id, delivery.url)
    return _add_attempt(conn, delivery.id, where, number=highest + 1, manual=True, created_at=at, due_at=at)


def _add_attempt(
    conn: sa.Connection,
    delivery_id: str,
    destination: str,
    *,
    number: int,
    manual: bool,
    created_at: datetime,
    due_at: datetime,
) -> DeliveryAttempt:
    made = DeliveryAttempt(
        id=str(uuid4()),
        delivery_id=delivery_id,
        attempt=number,
        status="pending",
        manual=manual,
        created_at=created_at,
        next_attempt_at=due_at,
        destination=destination,
    )
    conn.execute(sa.insert(_a).values(**made.__dict__))
    return made


def due(
    conn: sa.Connection,
    now: datetime,
    *,
    limit: int = 100,
    destination: str | None = None,
    manual: bool | None = None,
) -> list[DueAttempt]:
    """The attempts whose time has come and that nobody has claimed, longest due first; of all, or only those to one
    destination, or those that are manual or not."""
    query = sa.select(*_ATTEMPT.columns, *_DELIVERY.columns).join(_t, _t.c.id == _a.c.delivery_id)
    # 'pending' as it stands in the index's condition, so that the index is used
    query = query.where(_a.c.status == sa.literal_column("'pending'"), _a.c.claimed_by.is_(None))
    query = query.where(_a.c.next_attempt_at <= now)
    if destination is not None:
        query = query.where(_a.c.destination == destination)
    if manual is not None:
        query = query.where(_a.c.manual == manual)
    rows = conn.execute(query.order_by(_a.c.next_attempt_at, _a.c.id).limit(limit))
    width = len(_ATTEMPT.columns)
    return [DueAttempt(_ATTEMPT.build(row[:width]), _DELIVERY.build(row[width:])) for row in rows]


def delivery_of_call(conn: sa.Connection, call_id: str) -> Delivery | None:
    """The event of a call's end; None when it has none."""
    query = sa.select(*_DELIVERY.columns).where(_t.c.call_id == call_id, _t.c.event == CALL_COMPLETED)
    row = conn.execute(query).one_or_none()
    return None if row is None else _DELIVERY.build(row)


def record_attempt(
    conn: sa.Connection,
    pending: DeliveryAttempt,
    *,
    succeeded: bool,
    response_status: int | None,
    response_body: str | None,
    error: str | None,
    duration_ms: int,
    started_at: datetime,
    next_attempt_at: datetime | None = None,
    claimant: str | None = None,
) -> DeliveryAttempt | None:
    """Note what became of a pending attempt. Any success ends the schedule. After a scheduled failure the next attempt
    waits for `next_attempt_at`, unless another one succeeded meanwhile; None: it was the last one. `claimant` made it:
    when its claim had expired and another one has taken the attempt over, a failure is the other one's to tell, and
    None is returned; so it is when the event has been removed with its call."""
    if _is_removed(conn, pending.delivery_id) or (not succeeded and _taken_over(conn, pending.id, claimant)):
        return None
    goes_on = not pending.manual and not succeeded and _status(conn, pending.delivery_id) == "pending"
    again = next_attempt_at if goes_on else None
    made = replace(
        pending,
        status="succeeded" if succeeded else "failed",
        response_status=response_status,
        response_body=response_body,
        error=error,
        duration_ms=duration_ms,
        created_at=started_at,
        next_attempt_at=again,
    )
    # Another one's success may have taken the row away while this one was on its way: it was made all the same.
    conn.execute(sa.delete(_a).where(_a.c.id == made.id))
    conn.execute(sa.insert(_a).values(**made.__dict__))
    if succeeded:
        _end_schedule(conn, made.delivery_id)
    elif again is not None:
        after = max(utc_now(), started_at + ONE_MS)  # a list that is ordered by time shows it above this one
        _add_attempt(
            conn, made.delivery_id, made.destination,
            number=made.attempt + 1, manual=False, created_at=after, due_at=again,
        )  # fmt: skip
    elif goes_on:
        _set_status(conn, made.delivery_id, "failed")
    return made


def _is_removed(conn: sa.Connection, delivery_id: str) -> bool:
    return conn.execute(sa.select(_t.c.id).where(_t.c.id == delivery_id)).first() is None


def _taken_over(conn: sa.Connection, attempt_id: str, claimant: str | None) -> bool:
    """Whether another one has claimed the attempt, or has recorded it."""
    row = conn.execute(sa.select(_a.c.status, _a.c.claimed_by).where(_a.c.id == attempt_id)).one_or_none()
    return row is not None and (row.status != "pending" or row.claimed_by not in (None, claimant))


def _status(conn: sa.Connection, delivery_id: str) -> DeliveryStatus | None:
    """None when the event is gone."""
    found = sa.select(_t.c.status).where(_t.c.id == delivery_id)
    status: DeliveryStatus | None = conn.execute(found).scalar_one_or_none()
    return status


def _set_status(conn: sa.Connection, delivery_id: str, status: DeliveryStatus) -> None:
    conn.execute(sa.update(_t).where(_t.c.id == delivery_id).values(status=status))


def _end_schedule(conn: sa.Connection, delivery_id: str) -> None:
    """Nothing follows by itself any more."""
    _set_status(conn, delivery_id, "succeeded")
    scheduled = sa.and_(_a.c.delivery_id == delivery_id, _a.c.status == "pending", _a.c.manual.is_(False))
    dropped = conn.execute(sa.delete(_a).where(scheduled).returning(_a.c.attempt)).scalars().all()
    announced = sa.and_(_a.c.delivery_id == delivery_id, _a.c.attempt.in_([number - 1 for number in dropped]))
    conn.execute(sa.update(_a).where(announced, _a.c.manual.is_(False)).values(next_attempt_at=None))


def page(conn: sa.Connection, call_id: str, *, limit: int, offset: int) -> ResultPage[DeliveryAttempt]:
    """The attempts for a call's event, newest first."""
    joined = _a.join(_t, _t.c.id == _a.c.delivery_id)
    total = conn.execute(sa.select(sa.func.count()).select_from(joined).where(_t.c.call_id == call_id)).scalar_one()
    query = sa.select(*_ATTEMPT.columns).select_from(joined).where(_t.c.call_id == call_id)
    rows = conn.execute(query.order_by(_a.c.created_at.desc(), _a.c.id).limit(limit).offset(offset))
    return ResultPage([_ATTEMPT.build(row) for row in rows], total)


def destination_of(url: str) -> str:
    """Host and port of an address, `receiver.example:443`; "" when it is none, so that those share one room too."""
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return ""
    return f"{parts.hostname}:{port}" if parts.hostname else ""


def lane_of(organization_id: str, url: str) -> str:
    """The organization and the destination of an address: whom others know as slow is slow for none but them."""
    return f"{organization_id} {destination_of(url)}"


def organization_of(lane: str) -> str:
    """Whose lane it is; "" for what was put into the outbox before lanes were organizations'."""
    organization_id, found, _ = lane.partition(" ")
    return organization_id if found else ""
