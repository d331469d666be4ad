"""Recordings that were deleted while the node with their files does not run."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from storage import tables
from storage.database import own_node
from storage.nodes import nodes

_t = tables.recording_removals


def of_down_nodes(conn: sa.Connection) -> list[tuple[str, datetime]]:
    """Calls, with their creation, whose recordings' files are to be removed by nodes that do not run."""
    own = own_node.filter_of(conn)
    if own is None:
        return []
    up = [each.name for each in nodes.all_of(conn) if not each.is_down]
    query = sa.select(_t.c.call_id, _t.c.created_at).where(_t.c.node.is_not(None), _t.c.node.not_in([*up, own]))
    return [(row[0], row[1]) for row in conn.execute(query)]
