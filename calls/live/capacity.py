"""How many calls fit beside the present ones, how busy the models are, and what is wrong with the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa
import structlog

from calls.live import node_capacity
from calls.live.events import LiveEvents
from calls.live.node_capacity import NodeCapacity
from calls.live.server_state import ServerState
from storage.database.database import Database
from storage.database.errors import StorageUnavailable

CHANGED_EVERY_S: Final = 1.0
"""Between two events because of calls."""
LOAD_EVERY_S: Final = 5.0
"""Between two looks at the load of the models and at warnings."""

log = structlog.get_logger()


@dataclass(frozen=True)
class CallCapacity:
    """Numbers of calls, second legs of transfers included: the organization's, and how many more it may have."""

    calls: int
    max_calls: int
    calls_left: int


@dataclass(frozen=True)
class Capacity:
    """The capacity for calls of one organization. `nodes`: each of several servers; empty for the only one."""

    calls: CallCapacity
    server: ServerState
    nodes: Sequence[NodeCapacity] = ()


ReadCapacity = Callable[[sa.Connection, str, int], CallCapacity]
"""Returns the numbers of an organization, with so many calls left on other nodes, on the database's thread."""


class CapacityFeed:
    """Publishes the capacity of each organization that is followed when it has changed. `server_state` returns what
    concerns all of them; `node` is the name of this server among several."""

    def __init__(
        self,
        database: Database,
        events: LiveEvents,
        read: ReadCapacity,
        server_state: Callable[[], ServerState],
        node: str | None = None,
    ) -> None:
        self._node = node
        self._database = database
        self._events = events
        self._read = read
        self._server_state = server_state
        self._changed = asyncio.Event()
        self._calls: dict[str, Capacity] = {}
        self._told: dict[str, Capacity] = {}
        events.on_followed = self._on_followed

    def of(self, conn: sa.Connection, organization_id: str) -> Capacity:
        """Returns the capacity now, on the database's thread."""
        state = self._server_state()
        if self._node is None:
            return Capacity(self._read(conn, organization_id, 0), state)
        found = node_capacity.of_all_nodes(conn, organization_id)
        calls = self._read(conn, organization_id, node_capacity.left_on_others(found, self._node))
        return Capacity(calls, state, found)

    def on_change(self) -> None:
        """A call or a transfer leg was added or removed, or calls are rejected from now on, or not any more."""
        self._changed.set()

    def _on_followed(self, _organization_id: str) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Publish changes until cancelled."""
        while True:
            try:
                async with asyncio.timeout(LOAD_EVERY_S if self._told or self._calls else None):
                    await self._changed.wait()
            except TimeoutError:
                if self._node is not None:  # other nodes may have changed
                    await self._read_calls()
            else:
                self._changed.clear()
                await self._read_calls()
            self._publish()
            await asyncio.sleep(CHANGED_EVERY_S)

    async def _read_calls(self) -> None:
        """Read the numbers of those who are followed."""
        followed = list(self._events.followed())
        if not followed:
            self._calls.clear()
            return

        def read(conn: sa.Connection) -> dict[str, Capacity]:
            return {each: self.of(conn, each) for each in followed}

        try:
            self._calls = await self._database.read(read)
        except StorageUnavailable as error:
            log.debug("capacity.not_read", cause=error.cause)

    def _publish(self) -> None:
        followed = set(self._events.followed())
        self._calls = {each: calls for each, calls in self._calls.items() if each in followed}
        self._told = {each: told for each, told in self._told.items() if each in followed}
        if not self._calls:
            return
        state = self._server_state()
        for organization_id, read in self._calls.items():
            capacity = replace(read, server=state)
            if capacity != self._told.get(organization_id):
                self._told[organization_id] = capacity
                self._tell(organization_id, capacity)

    def _tell(self, organization_id: str, capacity: Capacity) -> None:
        self._events.publish(organization_id, "capacity.updated", lambda: capacity)
