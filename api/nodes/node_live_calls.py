"""What only other nodes know of live calls, for lists: each node that has some of the organization is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import sqlalchemy as sa
from aiohttp import web

from api.nodes.node_client import NodeClient
from api.nodes.node_queries import NodeQueries
from api.nodes.node_routes import LIVE_DETAILS
from api.nodes.operations import LIVE_CALLS_PATH
from api.services import NodeIdentity
from calls.live.live_call import LiveDetails
from calls.live.node_reachability import NodeReachability
from storage import tables
from storage.database.database import Database
from storage.nodes import nodes
from storage.nodes.nodes import Node

KEEP_S: Final = 0.5
"""How long an answer serves further lists of the organization."""
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
        self._queries = NodeQueries(own, client, reachability)
        self._database = database
        self._answers: dict[str, tuple[float, asyncio.Task[NodeAnswers]]] = {}
        """By organization, each with the time until which it serves, monotonic."""

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
        target = f"{LIVE_CALLS_PATH}?organization={quote(organization_id, safe='')}"
        given = await self._queries.ask(asked, target, LIVE_DETAILS)
        calls = {call_id: details for answer in given.values() for call_id, details in answer.items()}
        return NodeAnswers(calls, frozenset(given))


NODE_LIVE_CALLS: Final = web.AppKey("node_live_calls", NodeLiveCalls)
