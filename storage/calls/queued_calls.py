"""Queued outbound calls, which wait to be dialled. In PostgreSQL those that are not dialled yet change hands: a node
that drains or is down gives them back (they have no node), and another one acquires them. Row locks decide between
nodes: `calls.mark_dialling` is the last step before the INVITE, and fails for a call that the node has given back or
lost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.agents.agents import AGENT, Agent
from storage.calls.calls import CALL, Call
from storage.database import own_node
from storage.database.postgresql import notifications
from storage.phone_numbers.phone_numbers import NUMBER, PhoneNumber


@dataclass(frozen=True)
class QueuedCall:
    """A call that waits to be dialled, with its agent and its calling number; None: deleted since."""

    call: Call
    agent: Agent | None
    number: PhoneNumber | None


LOCK: Final = "queued calls"
"""The lock of the writes by which queued calls change hands."""

_t = tables.calls
_AGENT_AT: Final = len(CALL.columns)
_NUMBER_AT: Final = _AGENT_AT + len(AGENT.columns)
_QUEUED: Final = (
    sa.select(*CALL.columns, *AGENT.columns, *NUMBER.columns)
    .select_from(
        _t.outerjoin(tables.agents, tables.agents.c.id == _t.c.agent_id).outerjoin(
            tables.phone_numbers, tables.phone_numbers.c.id == _t.c.phone_number_id
        )
    )
    .where(_t.c.status == "queued", _t.c.ended_at.is_(None), _t.c.ending.is_(None))
    .where(own_node.is_own(_t.c.node))
    .where(_t.c.id.not_in(sa.bindparam("known", expanding=True)))
    .order_by(_t.c.created_at, _t.c.id)
)
_NOT_DIALLED: Final = sa.and_(
    _t.c.status == "queued", _t.c.ended_at.is_(None), _t.c.ending.is_(None), _t.c.call_sid.is_(None)
)
_FREE: Final = sa.select(_t.c.id).where(_t.c.node.is_(None), _NOT_DIALLED)


def waiting(conn: sa.Connection, exclude: Collection[str]) -> list[QueuedCall]:
    """The calls of this node that wait to be dialled, oldest first, without those of the ids `exclude`."""
    found = []
    for row in conn.execute(_QUEUED, {"known": sorted(exclude), "own_node": own_node.filter_of(conn)}):
        call, agent, number = row[:_AGENT_AT], row[_AGENT_AT:_NUMBER_AT], row[_NUMBER_AT:]
        found.append(
            QueuedCall(
                CALL.build(call),
                None if agent[0] is None else AGENT.build(agent),
                None if number[0] is None else NUMBER.build(number),
            )
        )
    return found


def give_back(conn: sa.Connection, nodes: Collection[str]) -> list[str]:
    """Let any node dial the calls of these nodes that are not dialled yet; returns their ids. The nodes learn of it. In
    SQLite it changes nothing."""
    if conn.dialect.name == "sqlite":
        return []
    update = sa.update(_t).where(_t.c.node.in_(nodes), _NOT_DIALLED).values(node=None)
    given_back = list(conn.execute(update.returning(_t.c.id)).scalars())
    if given_back:
        notifications.notify(conn, _t.name)
    return given_back


def has_free(conn: sa.Connection) -> bool:
    """True if there are calls that were given back, for a node to acquire."""
    return own_node.filter_of(conn) is not None and conn.execute(_FREE.limit(1)).first() is not None


def acquire(conn: sa.Connection, limit: int, only: str | None = None) -> int:
    """Take calls that were given back, oldest first, at most `limit`; with `only`, the call of this id. Returns their
    number. Nodes that do so at once get different ones."""
    free = _FREE if only is None else _FREE.where(_t.c.id == only)
    oldest = free.order_by(_t.c.created_at, _t.c.id).limit(limit).with_for_update(skip_locked=True)
    taken = sa.update(_t).where(_t.c.id.in_(oldest)).values(node=own_node.name_of(conn))
    return conn.execute(taken).rowcount


def is_own(conn: sa.Connection, call_id: str) -> bool:
    """True if a call that was queued by this node is still its own; then no other node takes it until the transaction
    ends. In SQLite all are."""
    if own_node.filter_of(conn) is None:
        return True
    query = sa.select(_t.c.id).where(_t.c.id == call_id, own_node.is_own(_t.c.node)).with_for_update()
    return conn.execute(query, {"own_node": own_node.filter_of(conn)}).first() is not None
