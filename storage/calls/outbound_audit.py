"""Audit log of outbound calls: each request to dial a destination, its origin and its verdict. Rows are never updated,
and are deleted when they are old. The end of a call is stored with the call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.tables.row_mapping import RowMapping

Verdict = Literal[
    "queued",
    "not_dialled",
    "refused_request",
    "refused_trunk",
    "refused_prefix",
    "refused_funds",
    "refused_ceiling",
    "refused_rate",
    "redirected",
    "redirect_refused",
    "referred",
    "refer_refused",
    "transferred",
]
DIALLED: Final[tuple[Verdict, ...]] = ("queued", "redirected", "referred", "transferred")
"""Verdicts after which the destination is dialled."""


@dataclass(frozen=True, kw_only=True)
class DialRequest:
    """A request to dial: by a client with an API key, or by the peer of a call (REFER, 3xx). `client` is its address.
    `number` and `api_key_prefix` belong to the ids; None: the id is not one of this organization's."""

    organization_id: str
    phone_number_id: str | None
    destination: str
    client: str | None
    number: str | None = None
    api_key_id: str | None = None
    api_key_prefix: str | None = None


@dataclass(frozen=True, kw_only=True)
class DialAttempt(DialRequest):
    """A stored request with its verdict. `detail` says why it was rejected."""

    id: str
    created_at: datetime
    verdict: Verdict
    call_id: str | None
    detail: str | None


@dataclass(frozen=True)
class AttemptWithCall:
    """An attempt, and its call's status with the ended reason."""

    attempt: DialAttempt
    call_status: str | None


_ATTEMPT = RowMapping(DialAttempt, tables.outbound_attempts)
_t = tables.outbound_attempts


def record(
    conn: sa.Connection,
    request: DialRequest,
    verdict: Verdict,
    *,
    call_id: str | None = None,
    detail: str | None = None,
) -> DialAttempt:
    """Store a request with its verdict."""
    attempt = DialAttempt(
        **asdict(request), id=str(uuid4()), created_at=utc_now(), verdict=verdict, call_id=call_id, detail=detail
    )
    conn.execute(sa.insert(_t), asdict(attempt))
    return attempt


def attempt_of_call(conn: sa.Connection, call_id: str) -> DialAttempt | None:
    """The attempt that queued this call."""
    query = sa.select(*_ATTEMPT.columns).where(_t.c.call_id == call_id, _t.c.verdict == "queued")
    row = conn.execute(query).one_or_none()
    return None if row is None else _ATTEMPT.build(row)


def nth_newest(
    conn: sa.Connection,
    nth: int,
    since: datetime,
    *,
    organization_id: str,
    phone_number_id: str | None = None,
    verdicts: Collection[Verdict] = DIALLED,
) -> datetime | None:
    """The time of the `nth` newest attempt after `since` with one of these verdicts: of the number, else of the
    organization; None when there are fewer."""
    owned = _t.c.organization_id == organization_id
    if phone_number_id is not None:
        owned = _t.c.phone_number_id == phone_number_id
    query = sa.select(_t.c.created_at).where(owned, _t.c.created_at > since, _t.c.verdict.in_(verdicts))
    return conn.execute(query.order_by(_t.c.created_at.desc()).limit(1).offset(nth - 1)).scalar_one_or_none()


def page_after(
    conn: sa.Connection, organization_id: str, since: datetime, last_id: str, *, limit: int
) -> Sequence[AttemptWithCall]:
    """A page of an organization's log, oldest first: from `since` on, and at exactly that time only ids above
    `last_id`."""
    calls = tables.calls
    query = (
        sa.select(calls.c.status, calls.c.ended_reason, *_ATTEMPT.columns)
        .select_from(_t.outerjoin(calls, calls.c.id == _t.c.call_id))
        .where(
            _t.c.organization_id == organization_id,
            sa.tuple_(_t.c.created_at, _t.c.id) > sa.tuple_(sa.literal(since, tables.UtcTime), sa.literal(last_id)),
        )
        .order_by(_t.c.created_at, _t.c.id)
        .limit(limit)
    )
    return [
        AttemptWithCall(_ATTEMPT.build(row[2:]), row[0] if row[1] is None else f"{row[0]}, {row[1]}")
        for row in conn.execute(query)
    ]


def delete_before(conn: sa.Connection, organization_id: str, before: datetime, *, limit: int) -> int:
    """Delete the organization's oldest rows from before that time; returns their number."""
    old = sa.select(_t.c.id).where(_t.c.organization_id == organization_id, _t.c.created_at < before)
    deleted = conn.execute(sa.delete(_t).where(_t.c.id.in_(old.order_by(_t.c.created_at, _t.c.id).limit(limit))))
    return deleted.rowcount
