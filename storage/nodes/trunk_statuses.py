"""The statuses of trunks that one of several nodes registers, as that node has stored them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.nodes.nodes import database_time
from storage.tables.row_mapping import RowMapping

ROWS_PER_STATEMENT: Final = 500
OVERLAP: Final = timedelta(seconds=10)
"""A write may be committed so long after its time."""

_t = tables.trunk_statuses


@dataclass(frozen=True)
class StoredTrunkStatus:
    """The status of a trunk, by its key, on the node that registers it, when it was stored. `since`: as in
    `TrunkStatus`."""

    trunk: str
    node: str
    state: str
    detail: str | None
    since: datetime | None
    updated_at: datetime


_STATUS = RowMapping(StoredTrunkStatus, _t)


def store(conn: sa.Connection, statuses: Sequence[StoredTrunkStatus]) -> None:
    """Store statuses, by the database's clock."""
    now = database_time(conn)
    for first in range(0, len(statuses), ROWS_PER_STATEMENT):
        some = statuses[first : first + ROWS_PER_STATEMENT]
        conn.execute(sa.delete(_t).where(_t.c.trunk.in_([each.trunk for each in some])))
        conn.execute(sa.insert(_t), [{**each.__dict__, "updated_at": now} for each in some])


def delete(conn: sa.Connection, node: str, trunks: Collection[str]) -> None:
    """Delete what a node has stored of trunks that there are no more."""
    every = list(trunks)
    for first in range(0, len(every), ROWS_PER_STATEMENT):
        some = every[first : first + ROWS_PER_STATEMENT]
        conn.execute(sa.delete(_t).where(_t.c.node == node, _t.c.trunk.in_(some)))


def of_other_nodes(conn: sa.Connection, node: str, after: datetime | None) -> list[StoredTrunkStatus]:
    """What other nodes have stored since a time, or `OVERLAP` before it; None: ever."""
    query = sa.select(*_STATUS.columns).where(_t.c.node != node)
    if after is not None:
        query = query.where(_t.c.updated_at > after - OVERLAP)
    return [_STATUS.build(row) for row in conn.execute(query)]
