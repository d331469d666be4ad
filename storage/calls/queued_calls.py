"""Queued outbound calls, which wait to be dialled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.agents.agents import AGENT, Agent
from storage.calls.calls import CALL, Call
from storage.database import own_node
from storage.phone_numbers.phone_numbers import NUMBER, PhoneNumber


@dataclass(frozen=True)
class QueuedCall:
    """A call that waits to be dialled, with its agent and its calling number; None: deleted since."""

    call: Call
    agent: Agent | None
    number: PhoneNumber | None


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
