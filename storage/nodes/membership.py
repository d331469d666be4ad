"""Membership of a server among the nodes of one database: what it reports, what it learns of the others, and the work
that one node does for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa

from storage.nodes.nodes import Node, NodeState
from storage.nodes.work_share import WorkShare

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class NodeLoad:
    """What a node reports of itself."""

    state: NodeState
    calls: int
    capacity: int
    report: Mapping[str, Any] | None = None
    """As JSON."""


@dataclass(frozen=True)
class NodeHealth:
    """How a node takes part now. `heartbeat_age_s`: since its last heartbeat, None for the only server; `outage_s`: how
    long the database took no heartbeats, in all."""

    leases: int = 0
    heartbeat_age_s: float | None = None
    outage_s: float = 0.0


class Membership(Protocol):
    """How a server takes part in the work of all nodes. `report` returns its present load. `on_down` is called with the
    names of nodes that are down, to close their calls."""

    report: Callable[[], NodeLoad]
    on_down: Callable[[Collection[str]], Awaitable[Any]] | None

    async def join(self) -> None:
        """Before the server works. Raises `StartupError` if another node has the same name."""

    async def run(self) -> None:
        """Send heartbeats until cancelled."""

    def on_load(self) -> None:
        """Tell the other nodes at once if the state of this node has changed."""

    async def leave(self) -> None:
        """Give everything back, at the end."""

    async def run_alone(self, name: str, work: Work) -> None:
        """Run work that only one node may do at a time, whenever this is the one, until cancelled."""

    def share(self, prefix: str, begun_per_s: float, *, takes_part: bool = True) -> WorkShare:
        """Spread work over all nodes, piece by piece; see `LeasedShare`. Before `run`."""

    def share_of(self, limit: int) -> int:
        """How many of so many calls this node may have while the database is away: as even as possible over the nodes
        that were up last."""

    async def hand_over(self) -> None:
        """Once this node reports that it drains: wait until others do its shares, at most `HAND_OVER_S`."""

    def nodes(self, conn: sa.Connection) -> list[Node]:
        """All nodes, by name. Any thread."""

    def health(self) -> NodeHealth:
        """How this server takes part now. Any thread."""

    @property
    def instance(self) -> str | None:
        """The id of this start of a node; None: the only server."""

    @property
    def is_valid(self) -> bool:
        """True while no other node takes this one for down."""

    @property
    def sees_others(self) -> bool:
        """False in an outage of the database, in which the others send no heartbeats either, and for a while after."""

    @property
    def dead_nodes_at_start(self) -> Collection[str] | None:
        """The nodes whose calls this one closes when it starts; None: all."""


def starting_load() -> NodeLoad:
    """The load of a node that has not begun to work."""
    return NodeLoad("draining", 0, 0)
