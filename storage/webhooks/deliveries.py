"""Outbox of webhooks. An event is stored in the transaction that ends its call, with the exact bytes to send. Each
delivery attempt is a row, from its scheduling on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from urllib.parse import urlsplit
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.tables.agent_fields import CALL_COMPLETED, WebhookEvent
from storage.tables.row_mapping import ResultPage, RowMapping

DeliveryStatus = Literal["pending", "succeeded", "failed"]
ONE_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class EventReceiver:
    """An address that gets events; `secret_encrypted` is a `Secrets.encrypt` token. `endpoint_id` None: the agent's."""

    url: str
    secret_encrypted: str | None = field(default=None, repr=False)
    endpoint_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """An event for one receiver. `unique_key` differs from those of the call's other deliveries; `endpoint_id` None: it
    is for the agent's URL. `id` is sent as `X-Service-Delivery`; `secret_encrypted` is a `Secrets.encrypt` token.
    `status` is succeeded after any success, failed when the schedule ended without one."""

    id: str
    organization_id: str
    call_id: str
    event: WebhookEvent
    unique_key: str = field(repr=False)
    endpoint_id: str | None
    url: str = field(repr=False)
    body: bytes = field(repr=False)
    secret_encrypted: str | None = field(repr=False)
    status: DeliveryStatus
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class DeliveryAttempt:
    """One attempt. `attempt` is its number, 1, 2, ... by schedule; `manual`: requested by a client. A pending one was
    scheduled at `created_at` for `next_attempt_at`. A completed one was sent at `created_at` and took `duration_ms`;
    `error`: why there was no response; `next_attempt_at`: the time of the next one, None without one. `destination` is
    the `destination_key` of the event."""

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
    """An attempt with its delivery."""

    attempt: DeliveryAttempt
    delivery: Delivery


_DELIVERY = RowMapping(Delivery, tables.webhook_deliveries)
_ATTEMPT = RowMapping(DeliveryAttempt, tables.webhook_attempts)
_t = tables.webhook_deliveries
_a = tables.webhook_attempts
_earlier = _t.alias()
_earlier_attempt = _a.alias()
_HAS_EARLIER: Final = (
    sa.exists()
    .where(
        _earlier.c.call_id == _t.c.call_id,
        _earlier.c.url == _t.c.url,
        _earlier.c.created_at < _t.c.created_at,
        _earlier_attempt.c.delivery_id == _earlier.c.id,
        _earlier_attempt.c.attempt == 1,
        _earlier_attempt.c.status == "pending",
        _earlier_attempt.c.manual.is_(False),
    )
    .correlate(_t)
)
"""The first attempt of an earlier event of the same call at the same URL is not completed."""
_LATEST: Final = sa.select(sa.func.max(_t.c.created_at)).where(_t.c.call_id == sa.bindparam("call"))
_KEYS: Final = sa.select(_t.c.unique_key).where(_t.c.call_id == sa.bindparam("call"))
_INSERT: Final = sa.insert(_t)
_INSERT_ATTEMPT: Final = sa.insert(_a)


def unique_key(event: WebhookEvent, subject: str = "", endpoint_id: str | None = None) -> str:
    """Returns what identifies a delivery among those of its call."""
    return " ".join(each for each in (event, subject, endpoint_id) if each)


def receivers_without(
    conn: sa.Connection, call_id: str, event: WebhookEvent, subject: str, receivers: Sequence[EventReceiver]
) -> list[EventReceiver]:
    """Returns those of these receivers for whom the event is not in the outbox, sent or not."""
    stored = set(conn.execute(_KEYS, {"call": call_id}).scalars())
    return [each for each in receivers if unique_key(event, subject, each.endpoint_id) not in stored]


def add(
    conn: sa.Connection,
    *,
    organization_id: str,
    call_id: str,
    url: str,
    body: bytes,
    secret_encrypted: str | None,
    event: WebhookEvent = CALL_COMPLETED,
    subject: str = "",
    endpoint_id: str | None = None,
) -> Delivery:
    """As `add_all`, for one receiver."""
    receiver = EventReceiver(url, secret_encrypted, endpoint_id)
    (delivery,) = add_all(
        conn, [receiver], organization_id=organization_id, call_id=call_id, body=body, event=event, subject=subject
    )
    return delivery


def add_all(
    conn: sa.Connection,
    receivers: Sequence[EventReceiver],
    *,
    organization_id: str,
    call_id: str,
    body: bytes,
    event: WebhookEvent = CALL_COMPLETED,
    subject: str = "",
) -> list[Delivery]:
    """Store an event in the outbox for each receiver, due at once, but after the earlier ones of its call, by three
    statements whatever their number. Raises SQLAlchemy's `IntegrityError` for a second one of the same call, receiver,
    name and `subject`: what the event is about besides the call."""
    latest = conn.execute(_LATEST, {"call": call_id}).scalar_one()
    now = utc_now()
    at = now if latest is None else max(now, latest + ONE_MS)
    stored = [
        Delivery(
            id=str(uuid4()),
            organization_id=organization_id,
            call_id=call_id,
            event=event,
            unique_key=unique_key(event, subject, each.endpoint_id),
            endpoint_id=each.endpoint_id,
            url=each.url,
            body=body,
            secret_encrypted=each.secret_encrypted,
            status="pending",
            created_at=at,
        )
        for each in receivers
    ]
    attempts = [_new_attempt(each, number=1, manual=False, created_at=at, due_at=now) for each in stored]
    if stored:
        conn.execute(_INSERT, [each.__dict__ for each in stored])
        conn.execute(_INSERT_ATTEMPT, [each.__dict__ for each in attempts])
    return stored


def add_manual_attempt(conn: sa.Connection, delivery: Delivery, *, scheduled: int) -> DeliveryAttempt:
    """Schedule a manual attempt, due at once. Its number follows the highest one and, while the schedule of `scheduled`
    attempts continues, those reserved for it."""
    rows = conn.execute(sa.select(_a.c.attempt, _a.c.status, _a.c.manual).where(_a.c.delivery_id == delivery.id)).all()
    goes_on = any(row.status == "pending" and not row.manual for row in rows)
    highest = max([scheduled if goes_on else 0, *(row.attempt for row in rows)])
    at = utc_now()
    attempt = _new_attempt(delivery, number=highest + 1, manual=True, created_at=at, due_at=at)
    conn.execute(_INSERT_ATTEMPT, attempt.__dict__)
    return attempt


def _new_attempt(
    delivery: Delivery, *, number: int, manual: bool, created_at: datetime, due_at: datetime
) -> DeliveryAttempt:
    return DeliveryAttempt(
        id=str(uuid4()),
        delivery_id=delivery.id,
        attempt=number,
        status="pending",
        manual=manual,
        created_at=created_at,
        next_attempt_at=due_at,
        destination=destination_key(delivery.organization_id, delivery.url, delivery.event),
    )


def due_attempts(
    conn: sa.Connection,
    now: datetime,
    *,
    limit: int = 100,
    destination: str | None = None,
    manual: bool | None = None,
    overdue_at: datetime | None = None,
) -> list[DueAttempt]:
    """Attempts that are due and unclaimed, longest due first; of all, or only to one destination, or only manual or
    scheduled ones. The first attempt of an event waits for those of the earlier events of its call at the same URL,
    except for that of a `call.completed` that was due at `overdue_at` or before."""
    query = sa.select(*_ATTEMPT.columns, *_DELIVERY.columns).join(_t, _t.c.id == _a.c.delivery_id)
    # 'pending' as a literal, as in the index's condition, so that the index is used
    query = query.where(_a.c.status == sa.literal_column("'pending'"), _a.c.claimed_by.is_(None))
    may_begin = [_a.c.attempt > 1, _a.c.manual, ~_HAS_EARLIER]
    if overdue_at is not None:
        may_begin.append(sa.and_(_t.c.event == CALL_COMPLETED, _a.c.next_attempt_at <= overdue_at))
    query = query.where(_a.c.next_attempt_at <= now, sa.or_(*may_begin))
    if destination is not None:
        query = query.where(_a.c.destination == destination)
    if manual is not None:
        query = query.where(_a.c.manual == manual)
    rows = conn.execute(query.order_by(_a.c.next_attempt_at, _a.c.id).limit(limit))
    return [_with_delivery(row) for row in rows]


def delivery_of_call(conn: sa.Connection, call_id: str) -> Delivery | None:
    """The `call.completed` event of a call for its agent's URL; None when it has none."""
    query = sa.select(*_DELIVERY.columns).where(_t.c.call_id == call_id, _t.c.unique_key == unique_key(CALL_COMPLETED))
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
    """Record the result of a pending attempt that `claimant` made. Any success ends the schedule. After a scheduled
    failure the next attempt is scheduled for `next_attempt_at` (None: it was the last one), unless another one
    succeeded meanwhile. Returns None, and records nothing, when the event has been deleted with its call, and for a
    failure after the claim has expired and another claimant has taken the attempt over."""
    if _is_removed(conn, pending.delivery_id) or (not succeeded and _taken_over(conn, pending.id, claimant)):
        return None
    goes_on = not pending.manual and not succeeded and _status(conn, pending.delivery_id) == "pending"
    next_at = next_attempt_at if goes_on else None
    recorded = replace(
        pending,
        status="succeeded" if succeeded else "failed",
        response_status=response_status,
        response_body=response_body,
        error=error,
        duration_ms=duration_ms,
        created_at=started_at,
        next_attempt_at=next_at,
    )
    # Another attempt's success may have deleted the row while this one was under way: it is recorded all the same.
    conn.execute(sa.delete(_a).where(_a.c.id == recorded.id))
    conn.execute(_INSERT_ATTEMPT, recorded.__dict__)
    if succeeded:
        _end_schedule(conn, recorded.delivery_id)
    elif next_at is not None:
        after = max(utc_now(), started_at + ONE_MS)  # so that lists ordered by time show it above this one
        following = replace(
            pending, id=str(uuid4()), attempt=pending.attempt + 1, created_at=after, next_attempt_at=next_at
        )
        conn.execute(_INSERT_ATTEMPT, following.__dict__)
    elif goes_on:
        _set_status(conn, recorded.delivery_id, "failed")
    return recorded


def _is_removed(conn: sa.Connection, delivery_id: str) -> bool:
    return conn.execute(sa.select(_t.c.id).where(_t.c.id == delivery_id)).first() is None


def _taken_over(conn: sa.Connection, attempt_id: str, claimant: str | None) -> bool:
    """True if another claimant has claimed or recorded the attempt."""
    query = sa.select(_a.c.status, _a.c.claimed_by).where(_a.c.id == attempt_id).with_for_update()
    row = conn.execute(query).one_or_none()
    return row is not None and (row.status != "pending" or row.claimed_by not in (None, claimant))


def _status(conn: sa.Connection, delivery_id: str) -> DeliveryStatus | None:
    """None when the event has been deleted."""
    found = sa.select(_t.c.status).where(_t.c.id == delivery_id)
    status: DeliveryStatus | None = conn.execute(found).scalar_one_or_none()
    return status


def _set_status(conn: sa.Connection, delivery_id: str, status: DeliveryStatus) -> None:
    conn.execute(sa.update(_t).where(_t.c.id == delivery_id).values(status=status))


def _end_schedule(conn: sa.Connection, delivery_id: str) -> None:
    """Set the delivery to succeeded, and delete its scheduled attempts."""
    _set_status(conn, delivery_id, "succeeded")
    scheduled = sa.and_(_a.c.delivery_id == delivery_id, _a.c.status == "pending", _a.c.manual.is_(False))
    deleted = conn.execute(sa.delete(_a).where(scheduled).returning(_a.c.attempt)).scalars().all()
    preceding = sa.and_(_a.c.delivery_id == delivery_id, _a.c.attempt.in_([number - 1 for number in deleted]))
    conn.execute(sa.update(_a).where(preceding, _a.c.manual.is_(False)).values(next_attempt_at=None))


def page(conn: sa.Connection, call_id: str, *, limit: int, offset: int) -> ResultPage[DueAttempt]:
    """The attempts of a call's events, newest first, each with its event."""
    joined = _a.join(_t, _t.c.id == _a.c.delivery_id)
    total = conn.execute(sa.select(sa.func.count()).select_from(joined).where(_t.c.call_id == call_id)).scalar_one()
    query = sa.select(*_ATTEMPT.columns, *_DELIVERY.columns).select_from(joined).where(_t.c.call_id == call_id)
    rows = conn.execute(query.order_by(_a.c.created_at.desc(), _a.c.id).limit(limit).offset(offset))
    return ResultPage([_with_delivery(row) for row in rows], total)


def of_call(conn: sa.Connection, call_id: str) -> list[Delivery]:
    """The events of a call, oldest first; of one event, that for the agent's URL first."""
    query = sa.select(*_DELIVERY.columns).where(_t.c.call_id == call_id)
    in_order = query.order_by(_t.c.created_at, _t.c.endpoint_id.is_not(None), _t.c.id)
    return [_DELIVERY.build(row) for row in conn.execute(in_order)]


def _with_delivery(row: Sequence[Any]) -> DueAttempt:
    width = len(_ATTEMPT.columns)
    return DueAttempt(_ATTEMPT.build(row[:width]), _DELIVERY.build(row[width:]))


def destination_of(url: str) -> str:
    """Returns host and port of a URL, `receiver.example:443`; "" for an invalid URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return ""
    return f"{parts.hostname}:{port}" if parts.hostname else ""


def destination_key(organization_id: str, url: str, event: WebhookEvent) -> str:
    """Returns the key of queueing: `ORGANIZATION_ID HOST:PORT`, so that a slow receiver delays one organization only;
    with ` progress` after it for all events but `call.completed`, so that these delay no `call.completed`."""
    key = f"{organization_id} {destination_of(url)}"
    return key if event == CALL_COMPLETED else f"{key} progress"


def organization_of_key(key: str) -> str:
    """Returns the organization of a key; "" for events of older versions, whose keys have none."""
    organization_id, found, _ = key.partition(" ")
    return organization_id if found else ""
