"""Four organizations whose servers accept and never respond (tarpits), and a fifth with a good one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from cryptography.fernet import Fernet

from calls.http_egress.concurrency import HttpEgressConcurrency
from calls.tools.http_tool import CallContext, HttpTool, ToolHttpAccess
from config.clock import utc_now
from config.secrets import Secrets
from storage.agents.tools import StoredTool
from storage.database.database import Database
from tests.calls.http_server import LOOPBACK, client_with
from tests.calls.webhooks.outbox_harness import Receiver, listening, put, put_many, running_sender

HOGS = 4


class Tarpit:
    """A server that accepts and never responds; `connections` counts."""

    def __init__(self) -> None:
        self.connections = 0
        self._news = asyncio.Event()
        self.ports: list[int] = []

    @asynccontextmanager
    async def open(self, ports: int = 1) -> AsyncIterator[Tarpit]:
        """Listen on this number of ports of loopback."""
        async with AsyncExitStack() as stack:
            for _ in range(ports):
                server = await asyncio.start_server(self._hold, "127.0.0.1", 0)
                stack.callback(server.close)
                self.ports.append(server.sockets[0].getsockname()[1])
            yield self

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._news.set()
        with suppress(ConnectionError):
            while await reader.read(4096):
                pass
        writer.close()

    async def settled(self, least: int) -> None:
        """Wait until there are `least` connections, and no further one for a moment."""
        async with asyncio.timeout(15):
            while self.connections < least:
                self._news.clear()
                await self._news.wait()
        while True:
            self._news.clear()
            try:
                async with asyncio.timeout(0.3):
                    await self._news.wait()
            except TimeoutError:
                return


@pytest.fixture
def secrets() -> Secrets:
    return Secrets([Fernet.generate_key()])


async def test_a_webhook_is_sent_at_once_beside_four_organizations_whose_receivers_never_respond(
    database: Database, secrets: Secrets
) -> None:
    async with Tarpit().open(ports=60) as tarpit, listening(Receiver()) as receiver:
        for _ in range(HOGS):
            await put_events(database, tarpit.ports)
        async with running_sender(database, secrets, timeout_s=30) as deliverer:
            await tarpit.settled(300)  # all that they may have
            await put(database, f"{receiver.origin}/hook")
            deliverer.wake()
            async with asyncio.timeout(5):
                await receiver.arrived.wait()


async def put_events(database: Database, ports: list[int]) -> None:
    """Put events of one organization into the outbox, two for each port."""
    await put_many(database, [f"http://127.0.0.1:{port}/hook" for port in ports], 2)


async def test_a_tool_request_is_sent_at_once_beside_four_organizations_whose_servers_never_respond(
    secrets: Secrets,
) -> None:
    receiver = Receiver()
    async with Tarpit().open() as tarpit, listening(receiver), client_with(LOOPBACK) as client:
        http_access = ToolHttpAccess(client, HttpEgressConcurrency(), secrets)
        hogs = [
            asyncio.create_task(tool(http_access, f"hog {hog}", f"http://127.0.0.1:{tarpit.ports[0]}/").run({}))
            for hog in range(HOGS)
            for _ in range(40)
        ]
        await tarpit.settled(112)  # all that they may have
        async with asyncio.timeout(5):
            answer = await tool(http_access, "fifth", f"{receiver.origin}/hook").run({})
        assert answer.ok
        for hog in hogs:
            hog.cancel()
        await asyncio.wait(hogs)


def tool(http_access: ToolHttpAccess, organization: str, url: str) -> HttpTool:
    """Returns a tool of a call of its own."""
    now = utc_now()
    stored = StoredTool(
        id="tool", organization_id=organization, name="berths", created_at=now, updated_at=now,
        config={"url": url, "method": "POST", "timeout": 30_000, "headers": [], "body": []},
    )  # fmt: skip
    return HttpTool(stored, "berths", CallContext("call", {}), http_access)
