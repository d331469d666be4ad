"""The audit log: who wanted to have whom called, and what came of it. Rows are never changed, and go when they are old;
how a call ended is told by the call."""

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
]
DIALLED: Final[tuple[Verdict, ...]] = ("queued", "redirected", "referred")
"""Verdicts after which somebody is called."""


@dataclass(frozen=True, kw_only=True)
class DialRequest:
    """What was wanted: by the holder of an API key at a client's address, or by the peer of a call, whose address
    `client` then is. `number` and `api_key_prefix` are what the ids stand for; None: nothing of this organization."""

    organization_id: str
    phone_number_id: str | None
    destination: str
    client: str | None
    number: str | None = None
    api_key_id: str | None = None
    api_key_prefix: str | None = None


@dataclass(frozen=True, kw_only=True)
class DialAttempt(DialRequest):
    """A stored wish. `detail` says why it was refused."""

    id: str
    created_at: datetime
    verdict: Verdict
    call_id: str | None
    detail: str | None


@dataclass(frozen=True)
class AttemptWithCall:
    """An attempt, and how its call stands: the status and, once it has ended, why."""

    attempt: DialAttempt
    call_status: str | None


_ATTEMPT = RowMapping(DialAttempt, tables.outbound_attempts)
_t = tables.outbound_attempts


def record(
    conn: sa.Connection, wish: DialRequest, verdict: Verdict, *, call_id: str | None = None, detail: str | None = None
) -> DialAttempt:
    """Store what came of a wish."""
    made = DialAttempt(
        **asdict(wish), id=str(uuid4()), created_at=utc_now(), verdict=verdict, call_id=call_id, detail=detail
    )
    conn.execute(sa.insert(_t), asdict(made))
    return made


def attempt_of_call(conn: sa.Connection, call_id: str) -> DialAttempt | None:
    """The attempt that a queued call came of."""
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
    """When the `nth` newest of the attempts after `since` was made that had such a verdict: of the number, else of the
    organization; None when there were fewer."""
    whose = _t.c.organization_id == organization_id
    if phone_number_id is not None:
        whose = _t.c.phone_number_id == phone_number_id
    query = sa.select(_t.c.created_at).where(whose, _t.c.created_at > since, _t.c.verdict.in_(verdicts))
    return conn.execute(query.order_by(_t.c.created_at.desc()).limit(1).offset(nth - 1)).scalar_one_or_none()


def page_after(
    conn: sa.Connection, organization_id: str, since: datetime, last_id: str, *, limit: int
) -> Sequence[AttemptWithCall]:
    """A piece of an organization's log, oldest first: from `since` on, and at that moment those with ids above
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


def forget(conn: sa.Connection, organization_id: str, before: datetime, *, limit: int) -> int:
    """Remove the organization's oldest rows, made before that time; returns how many."""
    old = sa.select(_t.c.id).where(_t.c.organization_id == organization_id, _t.c.created_at < before)
    gone = conn.execute(sa.delete(_t).where(_t.c.id.in_(old.order_by(_t.c.created_at, _t.c.id).limit(limit))))
    return gone.rowcount
