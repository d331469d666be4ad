"""Sends requests to other nodes over kept connections, and finds out early that a node is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, TypeVar

import aiohttp
import structlog
from yarl import URL

from api.nodes.asker import Asker
from api.nodes.node_authentication import now_ms
from api.nodes.signature import SignedRequest, sha256_of, sign
from config.errors import Conflict
from storage.database.database import Database
from storage.nodes import nodes
from storage.nodes.nodes import Node

GONE: Final = "The call's node is gone"
CONNECT_S: Final = 0.8
PROBE_EVERY_S: Final = 0.7
"""How long a response may take before the node is probed: that and a connection take less than 2 s."""
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
        self, node: Node, asker: Asker, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> aiohttp.ClientResponse:
        """Returns the response, whose body the caller reads. `target`: path and query as they were sent. Raises
        `Conflict` if the node is gone."""
        signed = {**headers, **self._signature(node, asker, method, target, body)}
        sending = asyncio.ensure_future(
            self._session().request(
                method, self._url(node, target), headers=signed, data=body or None, allow_redirects=False
            )
        )
        return await self._unless_gone(node, sending)

    async def websocket(
        self,
        node: Node,
        asker: Asker,
        target: str,
        headers: Mapping[str, str],
        max_message: int,
        heartbeat_s: float | None = None,
    ) -> aiohttp.ClientWebSocketResponse:
        """Returns an open WebSocket, which ends when the node does not answer a ping of every `heartbeat_s` within half
        of it. Raises `Conflict` if the node is gone, and `aiohttp.WSServerHandshakeError` for the status with which it
        refuses."""
        signed = {**headers, **self._signature(node, asker, "GET", target, b"")}
        timeout = aiohttp.ClientWSTimeout(ws_close=CLOSE_S)
        opening = asyncio.ensure_future(
            self._session().ws_connect(
                self._url(node, target),
                headers=signed,
                max_msg_size=max_message,
                timeout=timeout,
                heartbeat=heartbeat_s,
            )
        )
        return await self._unless_gone(node, opening)

    def _session(self) -> aiohttp.ClientSession:
        if self._kept is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=self._keep_alive_s)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
            self._kept = aiohttp.ClientSession(
                connector=connector, timeout=timeout, trust_env=False, auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(), skip_auto_headers=("User-Agent", "Accept-Encoding"),
            )  # fmt: skip
        return self._kept

    def _signature(self, node: Node, asker: Asker, method: str, target: str, body: bytes) -> dict[str, str]:
        signed = SignedRequest(node.instance, method, target, sha256_of(body), asker.encoded())
        return sign(self._secret, signed, now_ms())

    def _url(self, node: Node, target: str) -> URL:
        return URL(f"{node.url}{target}", encoded=True)

    async def _unless_gone(self, node: Node, work: asyncio.Future[T]) -> T:
        """Returns the result of `work`. Raises `Conflict` when the node cannot be reached or is down meanwhile."""
        try:
            while not (await asyncio.wait((work,), timeout=PROBE_EVERY_S))[0]:
                if not await self._is_there(node):
                    raise _gone(node, "no connection, or no heartbeat")
            return work.result()
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise _gone(node, type(error).__name__) from error
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait((work,))

    async def _is_there(self, node: Node) -> bool:
        """True if the node accepts connections and sends heartbeats."""
        url = URL(str(node.url))
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(url.host, url.port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        found = await self._database.read(nodes.all_of)
        return any(each.instance == node.instance and not each.is_down for each in found)


def _gone(node: Node, why: str) -> Conflict:
    log.warning("node.unreachable", node=node.name, why=why)
    return Conflict(GONE)
