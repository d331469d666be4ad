"""The list of an organization's calls: pages, filters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from storage import tables
from storage.calls.calls import CallRow, Direction, EndedReason, Status
from storage.tables.row_mapping import ResultPage, RowMapping

_ROW = RowMapping(CallRow, tables.calls)
_t = tables.calls


@dataclass(frozen=True)
class CallFilter:
    """Filter of a list of calls; the times bound `created_at`, both ends included."""

    agent_id: str | None = None
    phone_number_id: str | None = None
    status: Status | None = None
    direction: Direction | None = None
    ended_reason: EndedReason | None = None
    ended: bool | None = None
    test: bool | None = None
    interrupted: bool | None = None
    """True: ended calls with an interruption."""
    min_response_gap_ms: int | None = None
    """Ended calls with a response gap of at least this."""
    since: datetime | None = None
    until: datetime | None = None


def page(
    conn: sa.Connection, organization_id: str, *, limit: int, offset: int, call_filter: CallFilter
) -> ResultPage[CallRow]:
    """A page, newest first, without transcripts."""
    where = [_t.c.organization_id == organization_id, *_conditions(call_filter)]
    total = conn.execute(sa.select(sa.func.count()).select_from(_t).where(*where)).scalar_one()
    query = sa.select(*_ROW.columns).where(*where).order_by(_t.c.created_at.desc(), _t.c.id)
    rows = conn.execute(query.limit(limit).offset(offset))
    return ResultPage([_ROW.build(row) for row in rows], total)


def _conditions(only: CallFilter) -> list[sa.ColumnElement[bool]]:
    equal = ("agent_id", "phone_number_id", "status", "direction", "ended_reason")
    where = [_t.c[name] == getattr(only, name) for name in equal if getattr(only, name) is not None]
    switches = (
        (only.ended, _t.c.ended_at.is_not(None)),
        (only.test, _t.c.test.is_(True)),
        (only.interrupted, _t.c.interruptions > 0),
    )
    where += [condition if asked else ~condition for asked, condition in switches if asked is not None]
    if only.min_response_gap_ms is not None:
        where.append(_t.c.longest_gap_ms >= only.min_response_gap_ms)
    if only.since is not None:
        where.append(_t.c.created_at >= only.since)
    if only.until is not None:
        where.append(_t.c.created_at <= only.until)
    return where
