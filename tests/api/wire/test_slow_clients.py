"""Clients that do not read are disconnected and their memory is released; slow ones are served."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from api import app as application
from api.http.response_streaming import MAX_BYTES, ResponseMemory
from api.schemas.bounds import MIB
from config.settings_tables import ApiSettings
from storage import tables
from storage.calls import recordings
from tests.api.conftest import Api
from tests.api.wire.conftest import Live, Serve
from tests.storage.transaction_gate import PATIENCE_S

TIMEOUT_S = 0.3
LARGE = [{"name": f"{n}", "description": "x" * 2000, "number": "12", "mode": "cold"} for n in range(64)]
WAV_BYTES = 3 * 1024 * 1024


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> ResponseMemory:
    """The server's response memory."""
    created = ResponseMemory()
    monkeypatch.setattr(application, "ResponseMemory", lambda: created)
    return created


async def _create_large_agents(api: Api, count: int) -> None:
    """Creates large agents."""
    await api.create("/agents", {"name": "Anna", "transferTargets": LARGE})

    def copy(conn: sa.Connection) -> None:
        table = tables.agents
        row = conn.execute(sa.select(table).where(table.c.organization_id == api.organization_id)).mappings().one()
        conn.execute(sa.insert(table), [{**row, "id": f"{n:08}{row['id'][8:]}"} for n in range(count - 1)])

    await api.services.database.write(copy)


@asynccontextmanager
async def _client_that_does_not_read(live: Live, request: bytes) -> AsyncIterator[socket.socket]:
    """A client that sends a request and has a receive buffer of a few bytes."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", live.port))
        await loop.sock_sendall(client, request)
        yield client


async def _read_to_end(client: socket.socket, pause_s: float = 0.0) -> bytes:
    """Reads until the server closes the connection; raises if it is reset."""
    parts = []
    async with asyncio.timeout(PATIENCE_S):
        while part := await asyncio.get_running_loop().sock_recv(client, 32 * 1024):
            parts.append(part)
            await asyncio.sleep(pause_s)
    return b"".join(parts)


async def _wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.01)


async def test_a_client_that_does_not_read_is_disconnected_and_its_memory_is_released(
    serve: Serve, memory: ResponseMemory
) -> None:
    live = await serve(write_timeout_s=TIMEOUT_S)
    owner = live.api.organization_id
    await _create_large_agents(live.api, 30)
    async with _client_that_does_not_read(live, live.head("GET", "/v1/agents?limit=100")) as client:
        await _wait_until(lambda: memory.reserved(owner) > 3 * 1024 * 1024)
        await _wait_until(lambda: memory.reserved(owner) == 0)
        with pytest.raises(ConnectionError):
            await _read_to_end(client)


def test_the_default_write_timeout_is_at_most_10_seconds() -> None:
    assert ApiSettings().write_timeout_s <= 10


async def test_many_clients_that_do_not_read_stay_within_the_memory_of_their_organization(
    serve: Serve, memory: ResponseMemory
) -> None:
    live = await serve(write_timeout_s=TIMEOUT_S)
    owner, maximum = live.api.organization_id, 0
    await _create_large_agents(live.api, 30)
    other = await live.api.as_another_organization()
    await other.create("/agents", {"name": "One"})
    clients = [_client_that_does_not_read(live, live.head("GET", "/v1/agents?limit=100")) for _ in range(20)]
    for each in clients:
        await each.__aenter__()
    await _wait_until(lambda: memory.reserved(owner) >= MAX_BYTES - 4 * 1024 * 1024)
    status, answer = await other("GET", "/agents")
    assert (status, len(answer["data"])) == (200, 1)
    served = 0
    async with asyncio.timeout(2 * PATIENCE_S):
        while memory.reserved(owner):
            maximum, served = max(maximum, memory.reserved(owner)), served + 1
            await asyncio.sleep(0.01)
    assert 0 < maximum <= MAX_BYTES
    for each in clients:
        await each.__aexit__(None, None, None)
    status, answer = await live.api("GET", "/agents?limit=1")
    assert (status, len(answer["data"])) == (200, 1), "who reads is served again"


async def test_a_small_list_does_not_wait_for_unread_large_ones(serve: Serve, memory: ResponseMemory) -> None:
    live = await serve(write_timeout_s=PATIENCE_S)
    owner = live.api.organization_id
    await _create_large_agents(live.api, 30)
    async with AsyncExitStack() as stack:
        for _ in range(6):
            await stack.enter_async_context(_client_that_does_not_read(live, live.head("GET", "/v1/agents?limit=100")))
        await _wait_until(lambda: memory.reserved(owner) >= MAX_BYTES - MIB)
        async with asyncio.timeout(PATIENCE_S / 2):
            status, answer = await live.api("GET", "/agents?limit=1")
        assert (status, len(answer["data"])) == (200, 1)
        assert memory.reserved(owner) >= MAX_BYTES - MIB


async def test_a_slow_client_that_reads_gets_the_complete_response(serve: Serve, memory: ResponseMemory) -> None:
    live = await serve(write_timeout_s=TIMEOUT_S)
    await _create_large_agents(live.api, 8)
    request = live.head("GET", "/v1/agents", "Connection: close")
    async with _client_that_does_not_read(live, request) as client:
        started = asyncio.get_running_loop().time()
        body = (await _read_to_end(client, pause_s=TIMEOUT_S / 50)).split(b"\r\n\r\n", 1)[1]
        assert asyncio.get_running_loop().time() - started > TIMEOUT_S
    assert len(json.loads(body)["data"]) == 8
    assert memory.reserved(live.api.organization_id) == 0


async def test_pipelined_requests_whose_responses_are_not_read_release_their_memory(
    serve: Serve, memory: ResponseMemory
) -> None:
    live = await serve(write_timeout_s=TIMEOUT_S)
    await _create_large_agents(live.api, 30)
    async with _client_that_does_not_read(live, live.head("GET", "/v1/agents?limit=100") * 20) as client:
        await _wait_until(lambda: memory.reserved(live.api.organization_id) > 0)
        await _wait_until(lambda: memory.reserved(live.api.organization_id) == 0)
        with pytest.raises(ConnectionError):
            await _read_to_end(client)


async def test_head_of_a_large_list_has_its_length_and_no_body(serve: Serve, memory: ResponseMemory) -> None:
    live = await serve()
    await _create_large_agents(live.api, 5)
    wire = await live.connect()
    whole = await wire.ask(live.head("GET", "/v1/agents"))
    await wire.send(live.head("HEAD", "/v1/agents"))
    head = await wire.answer("HEAD")
    assert head.headers["content-length"] == str(len(whole.body))
    assert (await wire.ask(live.head("GET", "/v1/voices"))).status == 200
    assert memory.reserved(live.api.organization_id) == 0


async def _create_recorded_call(api: Api) -> str:
    """Stores a call with a large recording; returns its id."""
    at, call_id = datetime(2026, 1, 1, tzinfo=UTC), "5b04ac7c-2be9-4887-97d5-5fafa43022f1"
    path: Path = recordings.path_of(api.services.settings.data_dir, call_id, at)

    def put() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x5a" * WAV_BYTES)

    await asyncio.to_thread(put)
    row: dict[str, Any] = {
        "id": call_id,
        "organization_id": api.organization_id,
        "direction": "inbound",
        "status": "completed",
        "customer_number": "+41441234567",
        "recorded": True,
        "turn_count": 0,
        "transcript": [],
        "timeline": [],
        "context_variables": {},
        "metadata": {},
        "created_at": at,
        "updated_at": at,
        "ended_at": at,
    }
    await api.services.database.write(lambda conn: conn.execute(sa.insert(tables.calls).values(**row)))
    return call_id


@pytest.mark.parametrize("what", ["recording", "export"])
async def test_downloads_are_cut_off_and_served_like_lists(serve: Serve, what: str) -> None:
    live = await serve(write_timeout_s=TIMEOUT_S)
    path = f"/v1/calls/{await _create_recorded_call(live.api)}/{what}"
    request = live.head("GET", path, "Connection: close")
    if what == "recording":  # an archive compresses it to a few bytes
        async with _client_that_does_not_read(live, request) as client:
            await asyncio.sleep(4 * TIMEOUT_S)
            with pytest.raises(ConnectionError):
                await _read_to_end(client)
    async with _client_that_does_not_read(live, request) as slow:
        body = await _read_to_end(slow, pause_s=TIMEOUT_S / 100)
        assert len(body) > (WAV_BYTES if what == "recording" else 1000)
