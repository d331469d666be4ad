"""Sends requests to other nodes over kept connections, and finds out early that a node is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final, TypeVar

import aiohttp
import structlog
from yarl import URL

from api.nodes.forwarded_client import ForwardedClient
from api.nodes.node_authentication import now_ms
from api.nodes.signature import SignedRequest, sha256_of, sign
from config.errors import Conflict
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.nodes import nodes
from storage.nodes.nodes import Node

GONE: Final = "The call's node is gone"
CONNECT_S: Final = 0.8
PROBE_EVERY_S: Final = 0.4
"""How long a node may send nothing before it is probed."""
PROBE_S: Final = 1.1
"""How long the response to a probe may take: that and `PROBE_EVERY_S` are less than 2 s."""
PROBE_PATH: Final = "/healthz"
KEEP_ALIVE_S: Final = 15.0
"""Shorter than the server's own limit, so that it closes no connection that is about to be used."""
CLOSE_S: Final = 2.0
T = TypeVar("T")
log = structlog.get_logger()


class NodeClient:
    """The connections to other nodes. On the event loop."""

    def __init__(self, secret: bytes, database: Database, idle_timeout_s: float) -> None:
        self._secret = secret
        self._database = database
        self._keep_alive_s = min(KEEP_ALIVE_S, idle_timeout_s / 2)
        self._kept: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._kept is not None:
            await self._kept.close()

    async def request(
        self, node: Node, forwarded: ForwardedClient, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> aiohttp.ClientResponse:
        """Returns the response, whose body the caller reads. `target`: path and query as they were sent. Raises
        `Conflict` if the node is gone."""
        signed = {**headers, **self._signature(node, forwarded, method, target, body)}
        sending = self._session().request(
            method, self._url(node, target), headers=signed, data=body or None, allow_redirects=False
        )
        return await self.unless_gone(node, sending)

    async def websocket(
        self,
        node: Node,
        forwarded: ForwardedClient,
        target: str,
        headers: Mapping[str, str],
        max_message: int,
        heartbeat_s: float | None = None,
    ) -> aiohttp.ClientWebSocketResponse:
        """Returns an open WebSocket, which ends when the node does not answer a ping of every `heartbeat_s` within half
        of it. Raises `Conflict` if the node is gone, and `aiohttp.WSServerHandshakeError` for the status with which it
        refuses."""
        signed = {**headers, **self._signature(node, forwarded, "GET", target, b"")}
        timeout = aiohttp.ClientWSTimeout(ws_close=CLOSE_S)
        opening = self._session().ws_connect(
            self._url(node, target),
            headers=signed,
            max_msg_size=max_message,
            timeout=timeout,
            heartbeat=heartbeat_s,
        )
        return await self.unless_gone(node, opening)

    def _session(self) -> aiohttp.ClientSession:
        if self._kept is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=self._keep_alive_s)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
            self._kept = aiohttp.ClientSession(
                connector=connector, timeout=timeout, trust_env=False, auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(), skip_auto_headers=("User-Agent", "Accept-Encoding"),
            )  # fmt: skip
        return self._kept

    def _signature(
        self, node: Node, forwarded: ForwardedClient, method: str, target: str, body: bytes
    ) -> dict[str, str]:
        signed = SignedRequest(node.instance, method, target, sha256_of(body), forwarded.encoded())
        return sign(self._secret, signed, now_ms())

    def _url(self, node: Node, target: str) -> URL:
        return URL(f"{node.url}{target}", encoded=True)

    async def unless_gone(self, node: Node, work: Awaitable[T]) -> T:
        """Returns the result of `work`, for which this waits as long as the node is there. Raises `Conflict` when the
        node cannot be reached, hangs, or is down."""
        future = asyncio.ensure_future(work)
        watching = asyncio.create_task(self._until_gone(node), name=f"probes of node {node.name}")
        try:
            await asyncio.wait((future, watching), return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                watching.result()
                raise _gone(node, "no response to a probe, or no heartbeat")
            return future.result()
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise _gone(node, type(error).__name__) from error
        finally:
            future.cancel()
            watching.cancel()
            await asyncio.wait((future, watching))

    async def _until_gone(self, node: Node) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            if not await self._is_there(node):
                return

    async def _is_there(self, node: Node) -> bool:
        """True if the node's API responds, and the node sends heartbeats as far as the database can tell. A connection
        is not enough: the kernel takes it, and keeps it, for a process that hangs."""
        url = self._url(node, PROBE_PATH)
        try:
            async with asyncio.timeout(PROBE_S), self._session().get(url, allow_redirects=False):
                pass
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        try:
            found = await self._database.read(nodes.all_of)
        except StorageUnavailable:
            return True
        return any(each.instance == node.instance and not each.is_down for each in found)


def _gone(node: Node, why: str) -> Conflict:
    log.warning("node.unreachable", node=node.name, why=why)
    return Conflict(GONE)
