"""Host names whose servers do not respond delay only the organization that looks them up."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from calls.http_egress.client import HttpEgressClient
from calls.http_egress.threaded_resolver import OWNER_LIMIT, THREADS
from config.errors import HttpEgressError
from tests.calls.http_server import LOOPBACK, client_with, serving

Answered = threading.Event


@pytest.fixture
def dead_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answered]:
    """Lookups of names under `dead.example` fail, once this event is set; all others resolve to loopback."""
    answered, real = threading.Event(), socket.getaddrinfo

    def looked_up(host: str, *rest: Any, **more: Any) -> Any:
        if host.endswith("dead.example"):
            answered.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return real("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    yield answered
    answered.set()


async def says_ok(request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def asked(client: HttpEgressClient, owner: str | None, host: str, timeout_s: float = 5) -> str:
    try:
        answer = await client.request("GET", f"http://{host}/", timeout_s=timeout_s, max_bytes=10, owner=owner)
    except HttpEgressError as error:
        return f"{error.kind}: {error.message}"
    return answer.body.decode()


async def abandon_lookups(client: HttpEgressClient, owner: str | None, names: int) -> list[str]:
    """Look up a number of dead names, and abandon each soon."""
    return await asyncio.gather(
        *(asked(client, owner, f"{owner}-{number}.dead.example", timeout_s=0.1) for number in range(names))
    )


async def test_names_without_a_response_leave_threads_for_others(dead_servers: Answered) -> None:
    async with serving(says_ok) as origin, client_with(LOOPBACK) as client:
        port = origin.rpartition(":")[2]
        outcomes = await abandon_lookups(client, "slow", THREADS)
        assert sum(each.startswith("timeout") for each in outcomes) == OWNER_LIMIT
        assert sum("too many host names" in each for each in outcomes) == THREADS - OWNER_LIMIT
        assert await asked(client, "quick", f"office.example:{port}") == "ok"
        assert await asked(client, None, f"another.example:{port}") == "ok"


async def test_an_abandoned_lookup_counts_until_the_resolver_ends_it(dead_servers: Answered) -> None:
    async with serving(says_ok) as origin, client_with(LOOPBACK) as client:
        port = origin.rpartition(":")[2]
        await abandon_lookups(client, "slow", OWNER_LIMIT)
        assert "connection: " in await asked(client, "slow", f"office.example:{port}")
        under_way = [future for _, future in client._resolver._under_way]
        dead_servers.set()
        await asyncio.gather(*map(asyncio.wrap_future, under_way), return_exceptions=True)
        assert await asked(client, "slow", f"office.example:{port}") == "ok"
