"""The list of an organization's calls: pages, filters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from storage import tables
from storage.calls.calls import CallRow, Direction, Status
from storage.tables.row_mapping import ResultPage, RowMapping

_ROW = RowMapping(CallRow, tables.calls)
_t = tables.calls


@dataclass(frozen=True)
class CallFilter:
    """Filter of a list of calls; the times bound `created_at`, both ends included."""

    agent_id: str | None = None
    status: Status | None = None
    direction: Direction | None = None
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
    filters = {"agent_id": only.agent_id, "status": only.status, "direction": only.direction}
    where = [_t.c[name] == value for name, value in filters.items() if value is not None]
    if only.since is not None:
        where.append(_t.c.created_at >= only.since)
    if only.until is not None:
        where.append(_t.c.created_at <= only.until)
    return where
