"""The events of the other nodes, merged into those of this one while clients follow them: one stream from each node,
whatever the number of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import aiohttp
import structlog
from aiohttp import WSMsgType, web

from api.nodes.forwarded_client import ForwardedClient
from api.nodes.node_client import NodeClient
from api.nodes.node_routes import FOLLOWED, LINES_AT_ONCE, ORGANIZATIONS
from api.nodes.operations import EVENTS_PATH
from api.services import NodeIdentity, Services
from calls.live.events import RESYNC, LiveEvents
from calls.live.node_reachability import NodeReachability
from config.errors import Conflict
from storage.database.errors import StorageUnavailable
from storage.nodes import nodes
from storage.nodes.nodes import Node

READ_NODES_EVERY_S: Final = 2.0
"""Between two looks at the nodes while events are followed."""
RETRY_S: Final = 0.5
MAX_RETRY_S: Final = 10.0
PING_EVERY_S: Final = 1.0
"""A node that does not answer within half of this is not reachable: less than 2 s after it was."""
READY_S: Final = 1.0
"""How long a client waits for the streams of other nodes before it gets its own, seconds."""
MAX_LINE: Final = 256 * 1024
"""Bytes of an event, about."""

log = structlog.get_logger()


class NodeEvents:
    """Event loop only. A client that has missed events of a node gets a `resync` event once it is followed again."""

    def __init__(
        self, services: Services, own: NodeIdentity, client: NodeClient, reachability: NodeReachability, resync: bytes
    ) -> None:
        """`resync`: the data of such an event."""
        self._database = services.database
        self._own = own
        self._client = client
        self._reachability = reachability
        self._resync = resync
        self._events: LiveEvents = services.events
        self._events.on_followed_change = self._on_followed_change
        self._wanted = asyncio.Event()
        self._streams: dict[str, _Stream] = {}
        """By the instances of their nodes."""
        self._known: frozenset[str] = frozenset()
        """The organizations that each stream was told to follow."""
        self._begun: frozenset[str] = frozenset()
        """The organizations with a client that has begun to follow."""
        self._changed = asyncio.Condition()

    async def ready(self, organization_id: str) -> None:
        """Wait until the events of other nodes arrive, at most `READY_S`; those of nodes that cannot be reached arrive
        later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_S), self._changed:
                await self._changed.wait_for(lambda: self._is_ready(organization_id))
        self._begun |= {organization_id}

    def _is_ready(self, organization_id: str) -> bool:
        return organization_id in self._known and all(
            organization_id in each.confirmed or each.failing for each in self._streams.values()
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                await self._update()
                with suppress(TimeoutError):
                    async with asyncio.timeout(
                        READ_NODES_EVERY_S if self._streams or self._events.followed() else None
                    ):
                        await self._wanted.wait()
                self._wanted.clear()
        finally:
            await self._end(list(self._streams))

    @property
    def _pause_s(self) -> float | None:
        """How long until the next look at the nodes; None while nobody follows."""
        return READ_NODES_EVERY_S if self._streams or self._events.followed() else None

    def _on_followed_change(self) -> None:
        self._wanted.set()

    async def _update(self) -> None:
        """Follow the nodes that there are, and those organizations that are followed."""
        followed = frozenset(self._events.followed())
        self._begun &= followed
        others: dict[str, Node] = {}
        if followed:
            try:
                found = await self._database.read(nodes.all_of)
            except StorageUnavailable as error:
                log.debug("node.list_not_read", cause=error.cause)
                return
            for each in found:
                if each.is_down or each.url is None:
                    self._reachability.succeeded(each.name)
                elif each.instance != self._own.instance:
                    others[each.instance] = each
        await self._end([instance for instance in self._streams if instance not in others])
        for instance, node in others.items():
            if instance not in self._streams:
                self._streams[instance] = _Stream(self, node)
            self._streams[instance].follow(followed)
        self._known = followed
        await self._announce()

    async def _end(self, instances: Iterable[str]) -> None:
        for instance in instances:
            await self._streams.pop(instance).close()

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def connect(self, node: Node) -> aiohttp.ClientWebSocketResponse:
        """Returns the stream of a node. Raises `Conflict` or `aiohttp.ClientError`."""
        forwarded = ForwardedClient(self._own.name, "", None)
        return await self._client.websocket(node, forwarded, EVENTS_PATH, {}, LINES_AT_ONCE * MAX_LINE, PING_EVERY_S)

    async def on_reached(self, node: Node, confirmed: frozenset[str]) -> None:
        """From now on the events of these organizations arrive from a node."""
        self._reachability.succeeded(node.name)
        for organization_id in confirmed & self._begun:
            self._events.add(organization_id, RESYNC, self._resync)
        await self._announce()

    async def on_lost(self, node: Node, why: str) -> None:
        """No events arrive from a node."""
        self._reachability.failed(node.name, why)
        await self._announce()

    def on_event(self, line: str) -> None:
        """A node has told an event."""
        name, _, rest = line.partition(" ")
        organization_id, _, data = rest.partition(" ")
        self._events.add(organization_id, name, data.encode())


NODE_EVENTS: Final = web.AppKey("node_events", NodeEvents)


class _Stream:
    """The stream of one node."""

    def __init__(self, events: NodeEvents, node: Node) -> None:
        self.confirmed: frozenset[str] = frozenset()
        """The organizations whose events arrive."""
        self.failing = False
        self._events = events
        self._node = node
        self._asked: list[frozenset[str]] = []
        """Sets of organizations that are not confirmed yet, in the order in which they were sent."""
        self._followed: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._running = asyncio.create_task(self._run(), name=f"events of node {node.name}")

    def follow(self, organizations: frozenset[str]) -> None:
        """Follow these organizations from now on."""
        if organizations != self._followed:
            self._followed = organizations
            self._changed.set()

    async def close(self) -> None:
        """End it."""
        self._running.cancel()
        await asyncio.wait((self._running,))

    async def _run(self) -> None:
        wait_s = RETRY_S
        while True:
            try:
                await self._follow_once()
                why = "closed"
            except (Conflict, aiohttp.ClientError, OSError, TimeoutError) as error:
                why = type(error).__name__
            wait_s = RETRY_S if self.confirmed else min(2 * wait_s, MAX_RETRY_S)
            self.confirmed, self.failing = frozenset(), True
            await self._events.on_lost(self._node, why)
            await asyncio.sleep(wait_s)

    async def _follow_once(self) -> None:
        """Follow until the connection ends."""
        socket = await self._events.connect(self._node)
        self._asked.clear()
        self._changed.set()
        sending = asyncio.create_task(self._send(socket))
        try:
            while (message := await socket.receive()).type is WSMsgType.TEXT:
                await self._on_message(message.data)
        finally:
            sending.cancel()
            await asyncio.wait((sending,))
            await socket.close()

    async def _send(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Send the organizations whenever they change."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._asked.append(self._followed)
            await socket.send_str(ORGANIZATIONS.dump_json(self._followed).decode())

    async def _on_message(self, text: str) -> None:
        if text.startswith(f"{FOLLOWED} ") and self._asked:
            before, self.confirmed = self.confirmed, self._asked.pop(0)
            self.failing = False
            await self._events.on_reached(self._node, self.confirmed - before)
            return
        for line in text.split("\n"):
            self._events.on_event(line)
