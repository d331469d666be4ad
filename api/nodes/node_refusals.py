"""What other nodes have refused: INVITEs of an organization, and messages of unknown sources. All of them are asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeVar
from urllib.parse import quote

from aiohttp import web
from pydantic import TypeAdapter

from api.nodes.node_client import NodeClient
from api.nodes.node_queries import NodeQueries
from api.nodes.node_routes import REFUSED_INVITES, UNKNOWN_SOURCES
from api.nodes.operations import REFUSED_INVITES_PATH, UNKNOWN_SOURCES_PATH
from api.services import NodeIdentity
from calls.admission.refused_invites import RefusedInvite
from sipcore.security.unknown_sources import UnknownSource
from storage.database.database import Database
from storage.nodes import nodes

T = TypeVar("T")


class NodeRefusals:
    """Event loop only. Nodes that do not answer are left out, among them those of a version without these paths: they
    can be reached nevertheless."""

    def __init__(self, own: NodeIdentity, client: NodeClient, database: Database) -> None:
        self._own = own
        self._queries = NodeQueries(own, client)
        self._database = database

    async def invites(self, organization_id: str) -> Collection[Sequence[RefusedInvite]]:
        """Returns the refused INVITEs of an organization, of each other node the latest first. Raises
        `StorageUnavailable`."""
        target = f"{REFUSED_INVITES_PATH}?organization={quote(organization_id, safe='')}"
        return await self._ask_all(target, REFUSED_INVITES)

    async def unknown_sources(self) -> Collection[Sequence[UnknownSource]]:
        """Returns the unknown sources of each other node, the latest first. Raises `StorageUnavailable`."""
        return await self._ask_all(UNKNOWN_SOURCES_PATH, UNKNOWN_SOURCES)

    async def _ask_all(self, target: str, answer: TypeAdapter[T]) -> Collection[T]:
        found = await self._database.read(nodes.all_of)
        others = [each for each in found if each.name != self._own.name]
        return (await self._queries.ask(others, target, answer)).values()


NODE_REFUSALS: Final = web.AppKey("node_refusals", NodeRefusals)
