"""Nodes of one PostgreSQL database, each a real server process on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from storage.accounts import api_keys, organizations
from storage.database.database import Database
from tests.peers import postgresql
from tests.trunkline.api_client import Client
from tests.trunkline.server_process import Receiver, Server, environment, merged

SECRET = "0123456789abcdef" * 4
"""Of all nodes."""


class Cluster:
    """Running nodes, by their names, the database that they share, and a client of the first one."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.nodes: dict[str, Server] = {}
        self.receiver = Receiver()
        self.key = ""

    def server(self, name: str, **settings: Any) -> Server:
        """Returns a node that is not started yet, with the secrets that all share."""
        folder = self.folder / name
        folder.mkdir()
        node = Server(
            folder,
            database={"url": self.url},
            secret_key_file=str(self.folder / "secret.key"),
            **settings,
        )
        own = {"name": name, "url": node.origin, "secret_file": str(self.folder / "node.secret")}
        node.settings = merged(node.settings, {"node": own})
        node.environment = environment(node.data_dir, node.settings)
        node.secrets.add(SECRET)
        (node.data_dir / "trunkline.db").unlink()
        self.nodes[name] = node
        return node

    def client(self, name: str) -> Client:
        """A client of a node's API; the caller closes it."""
        return Client(self.nodes[name].origin, self.key, self.nodes[name].secrets)

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Database]:
        """The database, opened beside the nodes."""
        database = Database(self.url)
        await database.open()
        try:
            yield database
        finally:
            await database.close()

    async def create_key(self) -> None:
        """Create an organization with an API key."""

        def create(conn: sa.Connection) -> str:
            owner = organizations.create(conn, "office")
            return api_keys.create(conn, owner.id, requests_per_minute=100_000)[1]

        async with self.database() as database:
            self.key = await database.write(create)


@asynccontextmanager
async def cluster(folder: Path, *names: str, **settings: Any) -> AsyncIterator[Cluster]:
    """Start nodes with these names; they end with the block."""
    server = await asyncio.to_thread(postgresql.server)
    url = await asyncio.to_thread(server.take_database)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, server.give_back, url)
        made = Cluster(folder, url)
        secret_file = folder / "node.secret"
        secret_file.write_text(f"{SECRET}\n")
        secret_file.chmod(0o600)
        await stack.enter_async_context(made.receiver)
        await made.create_key()
        await asyncio.gather(*(stack.enter_async_context(made.server(name, **settings)) for name in names))
        yield made
