"""Recordings that were deleted while the node with their files does not run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from storage import tables
from storage.database import own_node
from storage.nodes import nodes

_t = tables.recording_removals


@dataclass(frozen=True)
class WaitingRemoval:
    """The recording of a call that a node which does not run is to remove. `is_abandoned`: the node is not known any
    more (`nodes.forget`)."""

    call_id: str
    created_at: datetime
    is_abandoned: bool


def of_down_nodes(conn: sa.Connection, *, limit: int, after: str = "") -> list[WaitingRemoval]:
    """What nodes that do not run are to remove, sorted by the ids of the calls, those above `after`."""
    own = own_node.filter_of(conn)
    if own is None:
        return []
    known = {each.name: each for each in nodes.all_of(conn)}
    up = [name for name, each in known.items() if not each.is_down]
    query = sa.select(_t).where(_t.c.node.is_not(None), _t.c.node.not_in([*up, own]), _t.c.call_id > after)
    found = conn.execute(query.order_by(_t.c.call_id).limit(limit))
    return [WaitingRemoval(each.call_id, each.created_at, each.node not in known) for each in found]
