"""What only other nodes know of live calls, for lists: each node that has some of the organization is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import aiohttp
import sqlalchemy as sa
from aiohttp import web
from pydantic import ValidationError

from api.nodes.asker import Asker
from api.nodes.node_client import NodeClient
from api.nodes.node_routes import LIVE_DETAILS
from api.nodes.operations import LIVE_CALLS_PATH
from api.services import NodeIdentity
from calls.live.live_call import LiveDetails
from calls.live.node_reachability import NodeReachability
from config.errors import Conflict
from storage import tables
from storage.database.database import Database
from storage.nodes import nodes
from storage.nodes.nodes import Node

ANSWER_S: Final = 1.5
"""How long the nodes may take to answer."""
KEEP_S: Final = 0.5
"""How long an answer serves further lists of the organization."""
BACK_OFF_S: Final = 5.0
"""How long a node that did not answer is not asked again."""
_t = tables.calls


@dataclass(frozen=True)
class NodeAnswers:
    """What other nodes know of live calls, by id, and the names of the nodes that have answered."""

    calls: Mapping[str, LiveDetails] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()


class NodeLiveCalls:
    """Event loop only."""

    def __init__(
        self, own: NodeIdentity, client: NodeClient, database: Database, reachability: NodeReachability
    ) -> None:
        self._own = own
        self._client = client
        self._database = database
        self._reachability = reachability
        self._answers: dict[str, tuple[float, asyncio.Task[NodeAnswers]]] = {}
        """By organization, each with the time until which it serves, monotonic."""
        self._back_off: dict[str, float] = {}
        """Instances of nodes that did not answer, each with the time until which it is not asked, monotonic."""

    async def of(self, organization_id: str) -> NodeAnswers:
        """Returns what other nodes know of the live calls of an organization; nothing of nodes that do not answer.
        Raises `StorageUnavailable`."""
        now_s = time.monotonic()
        self._answers = {each: kept for each, kept in self._answers.items() if kept[0] > now_s or not kept[1].done()}
        if organization_id not in self._answers:
            asking = asyncio.create_task(self._ask_all(organization_id), name="live calls of other nodes")
            self._answers[organization_id] = now_s + KEEP_S, asking
        return await asyncio.shield(self._answers[organization_id][1])

    async def _ask_all(self, organization_id: str) -> NodeAnswers:
        def read(conn: sa.Connection) -> Sequence[Node]:
            live = sa.select(_t.c.node).where(_t.c.organization_id == organization_id, _t.c.ended_at.is_(None))
            names = set(conn.execute(live.distinct()).scalars()) - {None, self._own.name}
            return [each for each in nodes.all_of(conn) if each.name in names] if names else []

        asked = await self._database.read(read, owner=organization_id)
        now_s = time.monotonic()
        self._back_off = {each: until_s for each, until_s in self._back_off.items() if until_s > now_s}
        up = [each for each in asked if not each.is_down and each.url and each.instance not in self._back_off]
        answers = await asyncio.gather(*(self._ask(each, organization_id) for each in up))
        given = {node.name: answer for node, answer in zip(up, answers, strict=True) if answer is not None}
        calls = {call_id: details for answer in given.values() for call_id, details in answer.items()}
        return NodeAnswers(calls, frozenset(given))

    async def _ask(self, node: Node, organization_id: str) -> Mapping[str, LiveDetails] | None:
        target = f"{LIVE_CALLS_PATH}?organization={quote(organization_id, safe='')}"
        try:
            async with asyncio.timeout(ANSWER_S):
                got = await self._client.request(node, Asker(self._own.name, "", None), "GET", target, {}, b"")
                try:
                    if got.status != 200:
                        raise Conflict(f"status {got.status}")
                    answer = LIVE_DETAILS.validate_json(await got.read())
                finally:
                    got.release()
        except (Conflict, aiohttp.ClientError, TimeoutError, OSError, ValidationError) as error:
            self._back_off[node.instance] = time.monotonic() + BACK_OFF_S
            self._reachability.failed(node.name, type(error).__name__)
            return None
        self._reachability.succeeded(node.name)
        return answer


NODE_LIVE_CALLS: Final = web.AppKey("node_live_calls", NodeLiveCalls)
