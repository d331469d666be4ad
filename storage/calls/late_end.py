"""Late ends: a node that was cut off alone went on with its calls, and another node has closed them as
`server_restart`. The true end replaces that one."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.calls import statistics
from storage.calls.calls import CALL, Call

_t = tables.calls
_CLOSED_FOR_NODE: Final = sa.and_(
    _t.c.id == sa.bindparam("call"),
    _t.c.ended_at.is_not(None),
    _t.c.ended_reason == "server_restart",
    _t.c.talk_removed_at.is_(None),
)


def reopen(conn: sa.Connection, call_id: str) -> Call | None:
    """Take the end of a call back that was closed as `server_restart`, so that its true one can be stored in this
    transaction. It keeps its usage and cost, and counts in no statistics meanwhile. Returns the call as it was closed;
    None (and nothing changes) for any other call, and once its transcript was deleted by retention."""
    row = conn.execute(sa.select(*CALL.columns).where(_CLOSED_FOR_NODE), {"call": call_id}).one_or_none()
    if row is None:
        return None
    closed = CALL.build(row)
    statistics.subtract(conn, closed)
    open_again = {
        "ended_at": None,
        "ended_reason": None,
        "duration_seconds": None,
        "status": "ringing" if closed.started_at is None else "in_progress",
    }
    conn.execute(sa.update(_t).where(_t.c.id == call_id).values(open_again))
    return closed
