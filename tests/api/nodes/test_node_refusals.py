"""Lists of refused calls and unknown sources are those of all nodes that answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from aiohttp import web

from api.nodes.node_queries import ANSWER_S
from api.nodes.node_routes import REFUSED_INVITES, UNKNOWN_SOURCES
from api.nodes.operations import REFUSED_INVITES_PATH, UNKNOWN_SOURCES_PATH
from calls.admission.refused_invites import RefusedInvite
from config.clock import utc_now
from sipcore.security.unknown_sources import UnknownSource
from storage.nodes import nodes
from storage.nodes.nodes import Node
from tests.api.auth.test_user_sessions import signed_in
from tests.api.conftest import Api, StartApi
from tests.api.nodes.test_request_forwarding import OWN, other_node

REFUSED, UNKNOWN = "/phone-numbers/refused-calls", "/v1/phone-numbers/unknown-sources"
NOW = utc_now()


def refused(minute: int, dialled: str) -> RefusedInvite:
    """A call to an unknown number."""
    return RefusedInvite(NOW + timedelta(minutes=minute), None, "192.0.2.10", dialled, "7", 404, "unknown number")


class Other:
    """A node with refused calls and an unknown source. `status` and `delay_s`: how it answers."""

    def __init__(self, name: str, invites: list[RefusedInvite], messages: int, status: int = 200, delay_s: float = 0):
        self.name, self.invites, self.status, self.delay_s = name, invites, status, delay_s
        self.sources = [UnknownSource("192.0.2.66", messages, NOW + timedelta(minutes=messages))]
        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        """As the routes of nodes."""
        self.asked.append(request.path_qs)
        await asyncio.sleep(self.delay_s)
        if request.path == UNKNOWN_SOURCES_PATH:
            return web.Response(status=self.status, body=UNKNOWN_SOURCES.dump_json(self.sources))
        return web.Response(status=self.status, body=REFUSED_INVITES.dump_json(self.invites))


@asynccontextmanager
async def running(api: Api, *others: Other) -> AsyncIterator[None]:
    """Those nodes, which the database lists as up."""
    async with AsyncExitStack() as stack:
        for other in others:
            url = await stack.enter_async_context(other_node(other.handle))
            node = Node(other.name, other.name, url, "1", "up", 0, 250, NOW, NOW)
            await api.services.database.write(partial(nodes.store_heartbeat, node=node))
        yield


async def dialled(api: Api) -> list[str]:
    """The dialled numbers of the refused calls."""
    status, answer = await api("GET", REFUSED)
    assert status == 200
    return [each["dialledNumber"] for each in answer["data"]]


async def started(start_api: StartApi, **more: Any) -> Api:
    """A server with a refused call and a message of an unknown source."""
    sources = [UnknownSource("192.0.2.66", 1, NOW)]
    api: Api = await start_api(refused_invites=lambda _: [refused(5, "own")], unknown_sources=lambda: sources, **more)
    return api


async def test_lists_have_what_all_nodes_have_refused_the_latest_first(start_api: StartApi) -> None:
    api = await started(start_api, node=OWN)
    b, c = Other("b", [refused(9, "new"), refused(1, "old")], 3), Other("c", [refused(7, "between")], 2)
    operator = await signed_in(api, "operator")
    async with running(api, b, c):
        assert await dialled(api) == ["new", "between", "own", "old"]
        status, answer = await operator("GET", UNKNOWN)
        assert (status, [(each["address"], each["messages"]) for each in answer["data"]]) == (200, [("192.0.2.66", 6)])
    asked = [f"{REFUSED_INVITES_PATH}?organization={api.organization_id}", UNKNOWN_SOURCES_PATH]
    assert b.asked == c.asked == asked, "of the organization alone"


async def test_nodes_that_do_not_answer_are_left_out_and_not_asked_again_at_once(start_api: StartApi) -> None:
    api = await started(start_api, node=OWN)
    b = Other("b", [refused(9, "new")], 1)
    of_before, hung = Other("c", [], 1, status=401), Other("d", [], 1, delay_s=ANSWER_S + 5)
    async with running(api, b, of_before, hung):
        began_s = time.monotonic()
        assert await dialled(api) == ["new", "own"]
        assert ANSWER_S <= time.monotonic() - began_s < ANSWER_S + 1.5
        assert await dialled(api) == ["new", "own"]
        assert api.services.node_reachability.unreachable == [], "a node of the version before can be reached"
    assert (len(b.asked), len(of_before.asked), len(hung.asked)) == (2, 1, 1)


async def test_the_only_server_of_a_database_asks_nobody(start_api: StartApi) -> None:
    api = await started(start_api)
    b = Other("b", [refused(9, "new")], 1)
    async with running(api, b):
        assert await dialled(api) == ["own"]
    assert b.asked == []
