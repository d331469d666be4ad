"""Which recordings are on the disk of a node, and which of them are to be moved to the store, by the calls in the
database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.database import own_node
from storage.recording_store.recording_files import CallKey

IDS_PER_QUERY: Final = 500
_t = tables.calls
_UNMARKED: Final = (
    _t.c.ended_reason == "server_restart",
    sa.not_(_t.c.recorded),
    _t.c.recording_removed_at.is_(None),
    _t.c.recording_absent_reason.is_(None),
)
"""Calls that another node may have closed without seeing that there is a recording."""


def ended_and_recorded(conn: sa.Connection, call_ids: Sequence[str]) -> list[CallKey]:
    """Those of these calls that have ended and have a recording: nothing more is written to it."""
    query = sa.select(_t.c.id, _t.c.created_at).where(_t.c.id.in_(call_ids), _t.c.ended_at.is_not(None), _t.c.recorded)
    return [CallKey(row.id, row.created_at) for row in conn.execute(query)]


def mark_recorded_before_restart(conn: sa.Connection, call_ids: Sequence[str]) -> int:
    """Mark those of these calls as recorded that another node has closed after this one had died: it did not see that
    there is a recording. Returns their number."""
    return conn.execute(sa.update(_t).where(_t.c.id.in_(call_ids), *_UNMARKED).values(recorded=True)).rowcount


def to_adopt(conn: sa.Connection, call_ids: Sequence[str]) -> dict[str, list[str]]:
    """Those of these calls, by organization, of which the database does not know that this node's disk has their
    recordings: it was moved to a database of several nodes, or had died."""
    found: dict[str, list[str]] = {}
    own = own_node.name_of(conn)
    elsewhere = sa.and_(_t.c.recorded, _t.c.ended_at.is_not(None), sa.func.coalesce(tables.recording_node, "") != own)
    for condition in (elsewhere, sa.and_(*_UNMARKED)):
        query = sa.select(_t.c.organization_id, _t.c.id).where(_t.c.id.in_(call_ids), condition)
        for organization_id, call_id in conn.execute(query):
            found.setdefault(organization_id, []).append(call_id)
    return found


def adopt(conn: sa.Connection, call_ids: Sequence[str]) -> None:
    """Store that the recordings of these calls are on the disk of this node."""
    mark_recorded_before_restart(conn, call_ids)
    here = (_t.c.id.in_(call_ids), _t.c.recorded, _t.c.ended_at.is_not(None))
    conn.execute(sa.update(_t).where(*here).values(recording_node=own_node.name_of(conn)))
