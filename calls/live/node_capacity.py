"""The capacity of each of several nodes, by what they report with their heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from calls.live.server_state import ServerState
from storage import tables
from storage.nodes import nodes
from storage.nodes.nodes import Node, NodeState

_STATE: Final = TypeAdapter(ServerState)
_t = tables.calls


@dataclass(frozen=True)
class NodeCapacity:
    """A node: the organization's calls on it, and how many more calls of any organization it takes."""

    name: str
    state: NodeState
    calls: int
    calls_left: int
    server: ServerState


def report_of(state: ServerState) -> Mapping[str, Any]:
    """Returns the state of a server as its node reports it, as JSON."""
    report: Mapping[str, Any] = _STATE.dump_python(state, mode="json")
    return report


def of_all_nodes(conn: sa.Connection, organization_id: str) -> Sequence[NodeCapacity]:
    """The nodes, by name, as of their last heartbeats."""
    live = sa.select(_t.c.node, sa.func.count()).where(_t.c.organization_id == organization_id, _t.c.ended_at.is_(None))
    calls = {row[0]: row[1] for row in conn.execute(live.group_by(_t.c.node))}
    return [_capacity(each, calls.get(each.name, 0)) for each in nodes.all_of(conn)]


def left_on_others(found: Sequence[NodeCapacity], own: str) -> int:
    """How many more calls other nodes take."""
    return sum(each.calls_left for each in found if each.name != own)


def _capacity(node: Node, calls: int) -> NodeCapacity:
    state = _reported(node)
    takes_calls = node.state == "up" and state.rejection_reason is None
    left = max(0, node.capacity - node.calls) if takes_calls else 0
    return NodeCapacity(node.name, node.state, calls, left, state)


def _reported(node: Node) -> ServerState:
    """What a node reports; nothing of one that is down, or of a version that reports nothing."""
    if node.is_down or node.report is None:
        return ServerState()
    try:
        return _STATE.validate_python(node.report)
    except ValidationError:  # of another version
        return ServerState()
