"""The streams of other nodes' events outlast failures of the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from api.nodes import node_events
from api.nodes.node_client import GONE, NodeClient
from api.nodes.node_events import NodeEvents
from api.services import NodeIdentity
from calls.live.events import LiveEvents
from calls.live.node_reachability import NodeReachability
from config.clock import utc_now
from config.errors import Conflict
from storage.database.errors import StorageUnavailable
from storage.nodes.nodes import Node

AWAY = StorageUnavailable("the database is away")
OWN = NodeIdentity("a", "a", b"x" * 32)


class Other:
    """Another node, and the database that lists it. `reads`, `connections`: how many of them fail."""

    def __init__(self, *, reads: int = 0, connections: int = 0) -> None:
        self.reads, self.connections = reads, connections
        self.sent: asyncio.Queue[str] = asyncio.Queue()

    async def read(self, _work: Callable[..., Any], **_: Any) -> list[Node]:
        """As `Database.read`."""
        self.reads -= 1
        if self.reads >= 0:
            raise AWAY
        return [Node("b", "b", "http://192.0.2.1", "1", "up", 0, 250, utc_now(), utc_now())]

    async def websocket(self, *_: Any) -> Any:
        """As `NodeClient.websocket`: the stream itself."""
        self.connections -= 1
        if self.connections >= 0:
            raise Conflict(GONE)
        return self

    async def send_str(self, _text: str) -> None:
        """Confirm the organizations, and tell an event of one."""
        self.sent.put_nowait("followed 1")
        self.sent.put_nowait('call.updated one {"id": 1}')

    async def receive(self) -> Any:
        """The next message."""
        return SimpleNamespace(type=aiohttp.WSMsgType.TEXT, data=await self.sent.get())

    async def close(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def following(other: Other) -> AsyncIterator[LiveEvents]:
    """The events of a node whose clients follow one organization."""
    events = LiveEvents()
    services = cast(Any, SimpleNamespace(database=other, events=events))
    merged = NodeEvents(services, OWN, cast(NodeClient, other), NodeReachability(), b"{}")
    running = asyncio.create_task(merged.run())
    try:
        yield events
    finally:
        running.cancel()
        await asyncio.wait((running,))


@pytest.mark.parametrize("other", [{"reads": 1}, {"connections": 1}, {"reads": 2, "connections": 2}])
async def test_the_events_of_another_node_arrive_after_the_database_was_away(
    other: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("READ_NODES_EVERY_S", "RETRY_S", "MAX_RETRY_S"):
        monkeypatch.setattr(node_events, name, 0.01)
    async with following(Other(**other)) as events:
        await asyncio.sleep(0)
        follower = events.follow("one")
        async with asyncio.timeout(5):
            while not [each for each in follower.take() if each.name == "call.updated"]:
                await asyncio.shield(follower.changed)
