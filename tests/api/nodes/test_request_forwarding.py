"""Requests for calls of another node that hangs, answers slowly, or cannot be asked."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import ClientPayloadError, ClientResponse, web
from aiohttp.test_utils import TestServer

from api.nodes import node_client
from api.nodes.node_client import GONE
from api.nodes.operations import OF_LIVE_CALLS, PASSED_ON, SOCKETS
from api.nodes.request_forwarding import NO_WAY
from api.routes import ROUTES
from api.services import NodeIdentity
from config.clock import utc_now
from storage import tables
from storage.nodes import nodes
from storage.nodes.nodes import Node
from tests.api.conftest import Api, StartApi
from tests.storage.calls.transfer_makers import parent_call

OWN = NodeIdentity("a", "a", b"x" * 32)
ANSWERED_S = 3.0
"""The longest time until a client is told that a node is gone: 2 s on cores of its own."""
STORED = frozenset(
    {
        ("GET", "/calls/{id}/transcript"),
        ("GET", "/calls/{id}/timeline"),
        ("GET", "/calls/{id}/webhook-deliveries"),
        ("POST", "/calls/{id}/webhook-deliveries"),
        ("DELETE", "/calls/{id}"),
    }
)
"""What any node does, from the database alone."""
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
LARGE = 300_000
"""Bytes of a body that is passed on as it comes."""


async def live_call_of(api: Api, url: str | None) -> str:
    """A live call of node `b`, whose API is at that URL."""

    def store(conn: sa.Connection) -> str:
        now = utc_now()
        nodes.store_heartbeat(conn, Node("b", "b", url, "1", "up", 1, 250, now, now))
        call = parent_call(conn, api.organization_id)
        conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call.id).values(node="b"))
        return call.id

    return await api.services.database.write(store)


async def ask(api: Api, operation: tuple[str, str], call_id: str) -> tuple[int, str]:
    """The status of a response, and its error."""
    method, path = operation
    headers = UPGRADE if operation in SOCKETS else {}
    bodies = {"whisper": {"content": "x"}, "messages": {"content": "x"}, "transfer": {"target": "x"}}
    body = bodies.get(path.rpartition("/")[2], {}) if method == "POST" else None
    response = await api.raw(method, path.removeprefix("/v1").replace("{id}", call_id), body, headers=headers)
    is_json = response.content_type == "application/json" and method != "HEAD"
    return response.status, (await response.json()).get("error", "") if is_json else ""


async def answers(api: Api, call_id: str) -> dict[tuple[str, str], tuple[int, str]]:
    """The responses to all requests for a live call, sent at once."""
    operations = sorted(OF_LIVE_CALLS)
    given = await asyncio.gather(*(ask(api, each, call_id) for each in operations))
    return dict(zip(operations, given, strict=True))


def expected(refusal: str) -> dict[tuple[str, str], tuple[int, str]]:
    """What is stored of the call; anything else is refused."""
    return {each: (200, "") if each[0] != "POST" and each not in SOCKETS else (409, refusal) for each in OF_LIVE_CALLS}


def test_each_operation_on_a_call_is_passed_on_or_needs_the_database_alone() -> None:
    of_calls = {(route.method, route.path) for route in ROUTES if route.path.startswith("/calls/{id}")}
    passed_on = {(method, path.removeprefix("/v1")) for method, path in PASSED_ON - SOCKETS if method != "HEAD"}
    assert of_calls == STORED | passed_on


async def test_a_client_is_told_in_time_that_the_node_of_a_call_hangs(start_api: StartApi) -> None:
    api: Api = await start_api(node=OWN)
    with socket.create_server(("127.0.0.1", 0)) as hung:  # as of a stopped process: the kernel takes connections
        call_id = await live_call_of(api, f"http://127.0.0.1:{hung.getsockname()[1]}")
        began_s = time.monotonic()
        assert await answers(api, call_id) == expected(GONE)
        assert time.monotonic() - began_s < ANSWERED_S


async def test_a_client_is_told_that_a_node_cannot_be_asked(start_api: StartApi) -> None:
    api: Api = await start_api(node=NodeIdentity("a", "a", None))
    assert await answers(api, await live_call_of(api, "http://192.0.2.1")) == expected(NO_WAY)


@asynccontextmanager
async def other_node(handle: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    """The URL of a node that responds to probes, and handles requests in this way."""

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path == node_client.PROBE_PATH:
            return web.json_response({"status": "ok"})
        response: web.StreamResponse = await handle(request)
        return response

    node = web.Application()
    node.router.add_route("*", "/{path:.*}", respond)
    async with TestServer(node) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_a_node_that_responds_to_probes_may_take_its_time(
    start_api: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_client, "PROBE_EVERY_S", 0.05)
    api: Api = await start_api(node=OWN)

    async def handle(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        response = web.StreamResponse(headers={"Content-Length": str(LARGE)})
        await response.prepare(request)
        await response.write(bytes(LARGE // 2))
        await asyncio.sleep(0.3)
        await response.write(bytes(LARGE // 2))
        return response

    async with other_node(handle) as url:
        response = await export(api, await live_call_of(api, url))
        assert await response.read() == bytes(LARGE)


@pytest.mark.parametrize("length", [100, LARGE])
async def test_a_body_ends_with_the_node_that_sends_it(
    start_api: StartApi, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """A short one is replaced by what is stored."""
    monkeypatch.setattr(node_client, "PROBE_EVERY_S", 0.05)
    api: Api = await start_api(node=OWN)
    over = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(length), "Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(bytes(length // 2))
        await api.services.database.write(stop)
        await over.wait()
        return response

    def stop(conn: sa.Connection) -> None:
        long_ago = utc_now() - 2 * nodes.DOWN_AFTER
        conn.execute(sa.update(tables.nodes).values(last_seen_at=long_ago))

    async with other_node(handle) as url:
        response = await export(api, await live_call_of(api, url))
        if length == LARGE:
            with pytest.raises(ClientPayloadError):
                await response.read()
        else:
            assert (response.status, response.content_type) == (200, "application/zip")
        over.set()


async def export(api: Api, call_id: str) -> ClientResponse:
    """The response to the request for all data of a call."""
    return await api.raw("GET", f"/calls/{call_id}/export")
