"""A client that keeps idle connections, against real servers on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import ResolveResult

from calls.http_egress.client import HttpEgressClient, HttpEgressStream
from config.errors import HttpEgressError
from tests.calls.http_server import LOOPBACK, serving, system_tls

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def keeping_client(keep_alive_s: float = 4) -> AsyncIterator[HttpEgressClient]:
    client = HttpEgressClient(LOOPBACK, await asyncio.to_thread(system_tls), keep_alive_s=keep_alive_s)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def ask(client: HttpEgressClient, url: str) -> AsyncIterator[HttpEgressStream]:
    async with client.open("POST", url, headers={}, body=b"{}", connect_s=5, head_s=5, max_bytes=100_000) as stream:
        yield stream


async def answer(client: HttpEgressClient, url: str) -> tuple[bytes, bool]:
    """The response's body, and whether it came on a reused connection."""
    async with ask(client, url) as stream:
        body = b""
        while chunk := await stream.read(5):
            body += chunk
        return body, stream.reused


@dataclass
class ClosingServer:
    """Answers `answers_per_connection` requests of each connection, and closes it on the next one without an answer."""

    answers_per_connection: int
    connections: int = 0
    requests: list[int] = field(default_factory=list)
    """The number of the connection of each request."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        for count in range(1_000):
            try:
                await reader.readuntil(b"\r\n\r\n{}")
            except asyncio.IncompleteReadError:
                break
            self.requests.append(number)
            if count >= self.answers_per_connection:
                break
            writer.write(OK)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def closing_server(answers_per_connection: int) -> AsyncIterator[tuple[ClosingServer, str]]:
    server = ClosingServer(answers_per_connection)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    try:
        yield server, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    finally:
        listening.close()


async def test_requests_one_after_another_share_a_connection_without_nagles_delay() -> None:
    delays: list[int] = []

    async with closing_server(100) as (server, url), keeping_client() as client:
        assert [await answer(client, url) for _ in range(3)] == [(b"ok", False), (b"ok", True), (b"ok", True)]
        assert client._keeping is not None and client._keeping.connector is not None
        for ((kept, _),) in client._keeping.connector._conns.values():
            assert kept.transport is not None
            connection = kept.transport.get_extra_info("socket")
            delays.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    assert server.connections == 1
    assert delays == [1]


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with closing_server(100) as (server, url), keeping_client(keep_alive_s=0.05) as client:
        await answer(client, url)
        await asyncio.sleep(0.2)
        assert await answer(client, url) == (b"ok", False)
    assert server.connections == 2


async def test_the_addresses_of_a_host_are_remembered_for_its_next_connections() -> None:
    async with closing_server(100) as (server, url), keeping_client(keep_alive_s=0.05) as client:
        looked_up: list[str] = []
        resolve = client._resolver.resolve

        async def noting(host: str, *arguments: Any, **named: Any) -> list[ResolveResult]:
            looked_up.append(host)
            return await resolve(host, *arguments, **named)

        client._resolver.resolve = noting  # type: ignore[method-assign]
        for _ in range(2):
            await answer(client, url.replace("127.0.0.1", "localhost"))
            await asyncio.sleep(0.2)
    assert (server.connections, looked_up) == (2, ["localhost"])


async def test_a_request_that_a_closing_connection_did_not_carry_is_sent_once_more_on_a_new_one() -> None:
    async with closing_server(1) as (server, url), keeping_client() as client:
        assert [(await answer(client, url))[0] for _ in range(2)] == [b"ok", b"ok"]
    assert server.requests == [1, 1, 2]


async def test_a_new_connection_that_breaks_is_an_error() -> None:
    async with closing_server(0) as (server, url), keeping_client() as client:
        with pytest.raises(HttpEgressError) as raised:
            await answer(client, url)
    assert raised.value.kind == "connection"
    assert server.requests == [1]


@pytest.mark.parametrize(("complete", "connections"), [(True, 1), (False, 2)])
async def test_the_end_of_a_complete_response_is_discarded_and_its_connection_kept(
    complete: bool, connections: int
) -> None:
    ports = set()

    async def streams(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"all that is needed")
        await asyncio.sleep(0.05)
        await response.write(b"and more")
        return response

    async with serving(streams) as origin, keeping_client() as client:
        for _ in range(2):
            async with ask(client, origin) as stream:
                assert await stream.read(5) == b"all that is needed"
                if complete:
                    stream.complete()
            while client._drains:
                await asyncio.wait(client._drains)
    assert len(ports) == connections


async def test_a_complete_response_that_goes_on_is_closed() -> None:
    left = asyncio.Event()

    async def goes_on(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"more")
                await asyncio.sleep(0.01)
        except ConnectionError:
            left.set()
            raise

    async with serving(goes_on) as origin, keeping_client() as client:
        async with ask(client, origin) as stream:
            await stream.read(5)
            stream.complete()
        async with asyncio.timeout(10):
            await left.wait()


async def test_closing_the_client_closes_the_connection_of_a_response_that_is_still_to_be_discarded() -> None:
    async def hangs(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"all that is needed")
        await asyncio.sleep(0.2)
        return response

    async with serving(hangs) as origin, keeping_client() as client:
        async with ask(client, origin) as stream:
            await stream.read(5)
            stream.complete()
        assert len(client._drains) == 1
        await client.close()
        assert (len(client._drains), stream._response.closed, stream._response.connection) == (0, True, None)
