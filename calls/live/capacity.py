"""How many calls fit beside the present ones, how busy the models are, and what is wrong with the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa
import structlog

from calls.live.events import LiveEvents
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
class ModelLoad:
    """`wait_s`: how long a response would wait for the models, smoothed; `max_wait_s`: the most that calls may wait.
    `capacity`: calls that the models are expected to answer in time, None if it is not known. `slow`: they keep calls
    waiting longer than that."""

    wait_s: float
    max_wait_s: float
    capacity: int | None
    slow: bool


@dataclass(frozen=True)
class ServerState:
    """What is the same for every organization. `models` None: they are not watched. `warnings`: what is wrong, by
    part."""

    rejection_reason: str | None = None
    models: ModelLoad | None = None
    warnings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Capacity:
    """The capacity for calls of one organization."""

    calls: CallCapacity
    server: ServerState


ReadCapacity = Callable[[sa.Connection, str], CallCapacity]
"""Returns the numbers of an organization, on the database's thread."""


class CapacityFeed:
    """Publishes the capacity of each organization that is followed when it has changed. `server_state` returns what
    concerns all of them."""

    def __init__(
        self, database: Database, events: LiveEvents, read: ReadCapacity, server_state: Callable[[], ServerState]
    ) -> None:
        self._database = database
        self._events = events
        self._read = read
        self._server_state = server_state
        self._changed = asyncio.Event()
        self._calls: dict[str, CallCapacity] = {}
        self._told: dict[str, Capacity] = {}
        events.on_followed = self._on_followed

    def of(self, conn: sa.Connection, organization_id: str) -> Capacity:
        """Returns the capacity now, on the database's thread."""
        return Capacity(self._read(conn, organization_id), self._server_state())

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
                pass
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

        def read(conn: sa.Connection) -> dict[str, CallCapacity]:
            return {each: self._read(conn, each) for each in followed}

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
        for organization_id, calls in self._calls.items():
            capacity = Capacity(calls, state)
            if capacity != self._told.get(organization_id):
                self._told[organization_id] = capacity
                self._tell(organization_id, capacity)

    def _tell(self, organization_id: str, capacity: Capacity) -> None:
        self._events.publish(organization_id, "capacity.updated", lambda: capacity)
