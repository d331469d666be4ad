"""Asks other nodes for what they have in memory, all at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import aiohttp
from pydantic import TypeAdapter, ValidationError

from api.nodes.forwarded_client import ForwardedClient
from api.nodes.node_client import NodeClient
from api.services import NodeIdentity
from calls.live.node_reachability import NodeReachability
from config.errors import Conflict
from storage.nodes.nodes import Node

ANSWER_S: Final = 1.5
"""How long the nodes may take to answer."""
BACK_OFF_S: Final = 5.0
"""How long a node that did not answer is not asked again."""
T = TypeVar("T")


class NodeQueries:
    """GET requests to other nodes. `reachability`: where it is noted which of them answer, None: nowhere. Event loop
    only."""

    def __init__(self, own: NodeIdentity, client: NodeClient, reachability: NodeReachability | None = None) -> None:
        self._own = own
        self._client = client
        self._reachability = reachability
        self._back_off: dict[str, float] = {}
        """Instances of nodes that did not answer, each with the time until which it is not asked, monotonic."""

    async def ask(self, nodes: Iterable[Node], target: str, answer: TypeAdapter[T]) -> Mapping[str, T]:
        """Returns the answers by the names of the nodes; nothing of nodes that are down or do not answer. `target`:
        path and query."""
        now_s = time.monotonic()
        self._back_off = {each: until_s for each, until_s in self._back_off.items() if until_s > now_s}
        up = [each for each in nodes if not each.is_down and each.url and each.instance not in self._back_off]
        answers = await asyncio.gather(*(self._ask(each, target, answer) for each in up))
        return {name: given for each in answers for name, given in each.items()}

    async def _ask(self, node: Node, target: str, answer: TypeAdapter[T]) -> Mapping[str, T]:
        """The answer by the name of the node; nothing if it does not answer."""
        try:
            async with asyncio.timeout(ANSWER_S):
                got = await self._client.request(
                    node, ForwardedClient(self._own.name, "", None), "GET", target, {}, b""
                )
                try:
                    if got.status != 200:
                        raise Conflict(f"status {got.status}")
                    given = answer.validate_json(await got.read())
                finally:
                    got.release()
        except (Conflict, aiohttp.ClientError, TimeoutError, OSError, ValidationError) as error:
            self._back_off[node.instance] = time.monotonic() + BACK_OFF_S
            if self._reachability is not None:
                self._reachability.failed(node.name, type(error).__name__)
            return {}
        if self._reachability is not None:
            self._reachability.succeeded(node.name)
        return {node.name: given}
