"""PostgreSQL goes away while the server starts, after its first connection: the start waits and goes on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import psycopg
import pytest

from storage.accounts import organizations
from storage.calls import calls
from storage.database.database import Database
from tests.peers import postgresql
from tests.trunkline.nodes.cluster import Cluster, cluster
from tests.trunkline.server_process import Server

pytestmark = pytest.mark.asyncio(loop_scope="package")
LIMIT_S = 40
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'"


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A database without nodes."""
    async with cluster(tmp_path) as made:
        yield made


async def open_call(url: str, node: str) -> str:
    """Stores a call as a killed node leaves it; returns its id."""
    database = Database(url, node)
    await database.open()
    owner = await database.write(lambda conn: organizations.create(conn, "killed").id)
    call = await database.write(
        lambda conn: calls.create_inbound(
            conn, organization_id=owner, agent_id=str(uuid4()), phone_number_id=str(uuid4()), provider="sip",
            call_sid="abc", customer_number="1",
        )
    )  # fmt: skip
    await database.close()
    return call.id


async def statuses(node: Server, *paths: str) -> list[int]:
    found = []
    async with aiohttp.ClientSession(node.origin) as client:
        for path in paths:
            async with client.get(path) as response:
                found.append(response.status)
    return found


async def stopped_at(node: Server, url: str, table: str) -> asyncio.Task[object]:
    """Starts a server, and stops PostgreSQL when the server waits for a lock of this table; returns the start."""
    server, database = await asyncio.to_thread(postgresql.server), Database(url).url.database
    session: psycopg.Connection[Any] = await asyncio.to_thread(lambda: psycopg.connect(url.replace("+psycopg", "")))
    await asyncio.to_thread(session.execute, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
    starting: asyncio.Task[object] = asyncio.create_task(node.start())
    async with asyncio.timeout(LIMIT_S):
        while not await asyncio.to_thread(server.value, WAITS.format(database)):
            assert not starting.done()
            await asyncio.sleep(0.02)
    await asyncio.to_thread(server.stop)
    session.close()
    return starting


@pytest.mark.parametrize("table", ["nodes", "calls"])
async def test_the_start_waits_and_goes_on_with_the_step_that_failed(empty: Cluster, table: str) -> None:
    server, node = await asyncio.to_thread(postgresql.server), empty.server("a")
    call_id = await open_call(empty.url, "a")
    try:
        try:
            starting = await stopped_at(node, empty.url, table)
            assert "the database cannot be reached" in (await node.event("database.awaited"))["why"]
            assert await statuses(node, "/healthz", "/readyz", "/v1/calls") == [200, 503, 503]
        finally:
            await asyncio.to_thread(server.start)
        await starting
        assert await statuses(node, "/healthz", "/readyz") == [200, 200]
    finally:
        await node.close()
    query = f"SELECT ended_reason FROM calls WHERE id = '{call_id}'"
    assert await asyncio.to_thread(server.value, query, str(Database(empty.url).url.database)) == "server_restart"
    assert [each["closed"] for each in node.log.all("calls.recovered")] == [1]
    assert len(node.log.all("database.reached")) == len(node.log.all("ready")) == 1


async def test_a_start_that_waits_for_a_database_that_went_away_can_be_stopped(empty: Cluster) -> None:
    server, node = await asyncio.to_thread(postgresql.server), empty.server("a")
    try:
        starting = await stopped_at(node, empty.url, "calls")
        await node.event("database.awaited")
        node.signal(signal.SIGTERM)
        assert await node.ended() == 0
        with pytest.raises(AssertionError, match="it ended: True"):
            await starting
        assert node.log.all("stopped")
    finally:
        await asyncio.to_thread(server.start)
        await node.close()
