"""Membership of the only server of a database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage.nodes.membership import NodeHealth, NodeLoad, Work, starting_load
from storage.nodes.nodes import Node
from storage.nodes.work_share import AllWork, WorkShare


class SingleNode:
    """The only server of a database: there is nothing to agree on."""

    dead_nodes_at_start = None
    instance = None
    is_valid = True
    sees_others = True

    def __init__(self, name: str, url: str | None, version: str) -> None:
        now = utc_now()
        self._node: Final = Node(name, str(uuid4()), url, version, "up", 0, 0, now, now)
        self.report: Callable[[], NodeLoad] = starting_load
        self.on_down: Callable[[Collection[str]], Awaitable[Any]] | None = None

    async def join(self) -> None:
        """As `Membership.join`."""

    async def run(self) -> None:
        """As `Membership.run`."""

    def on_load(self) -> None:
        """As `Membership.on_load`."""

    async def leave(self) -> None:
        """As `Membership.leave`."""

    async def run_alone(self, name: str, work: Work) -> None:
        """As `Membership.run_alone`."""
        await work()

    def share(self, prefix: str, begun_per_s: float, *, takes_part: bool = True) -> WorkShare:
        """As `Membership.share`."""
        return AllWork()

    def share_of(self, limit: int) -> int:
        """As `Membership.share_of`."""
        return limit

    async def hand_over(self) -> None:
        """As `Membership.hand_over`."""

    def health(self) -> NodeHealth:
        """As `Membership.health`."""
        return NodeHealth()

    def nodes(self, _conn: sa.Connection) -> list[Node]:
        """This server, as it is now."""
        load = self.report()
        return [replace(self._node, state=load.state, calls=load.calls, capacity=load.capacity, last_seen_at=utc_now())]
