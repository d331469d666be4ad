"""The server's database: locked, migrated, and opened together with the secret key of its encrypted values."""

from __future__ import annotations

import asyncio
import importlib.metadata
from contextlib import AsyncExitStack
from typing import Final

from api.nodes.signature import MIN_SECRET
from api.services import NodeIdentity
from config.errors import StartupError
from config.secrets import Secrets, read_key
from config.settings import Settings
from storage.database import file_permissions, secret_key, server_lock
from storage.database.database import Database
from storage.database.sqlite import lost_database
from storage.nodes.cluster_membership import ClusterMembership
from storage.nodes.membership import Membership
from storage.nodes.single_node import SingleNode
from trunkline.wiring.storage.database_wait import DatabaseWait

SECRET_SETTING: Final = "[node] secret_file"


async def join_nodes(settings: Settings, database: Database, stack: AsyncExitStack) -> Membership:
    """Takes part in the work of all nodes until `stack` is closed. Raises `StartupError` if another node has the same
    name."""
    name, url = settings.node.effective_name, settings.node.url
    version = importlib.metadata.version("trunkline")
    membership: Membership = SingleNode(name, url, version)
    if not database.is_sqlite:
        membership = ClusterMembership(database, name, url, version)
    await membership.join()
    stack.push_async_callback(membership.leave)
    heartbeats = asyncio.create_task(membership.run(), name="heartbeats")  # at once: models take long to load

    async def end() -> None:
        heartbeats.cancel()
        await asyncio.wait((heartbeats,))

    stack.push_async_callback(end)
    return membership


async def node_identity(settings: Settings, membership: Membership) -> NodeIdentity | None:
    """This server among several, with the secret that they share; None if it is the only one. Raises `StartupError` if
    the secret cannot be read, or is too short."""
    if membership.instance is None:
        return None
    secret = None
    if settings.node.secret_file is not None:
        text = await asyncio.to_thread(read_key, settings.node.secret_file, SECRET_SETTING)
        if len(text) < MIN_SECRET:
            raise StartupError(
                f"{SECRET_SETTING} {settings.node.secret_file}: the secret needs at least {MIN_SECRET} characters; "
                "make one with: openssl rand -hex 32"
            )
        secret = text.encode()
    return NodeIdentity(settings.node.effective_name, membership.instance, secret)


async def open_server_database(
    settings: Settings, stack: AsyncExitStack, wait: DatabaseWait
) -> tuple[Database, Secrets]:
    """Returns the database, a file locked against other servers, and its secret key. The database is opened first,
    because it decides whether a missing key may be created. While PostgreSQL is away `wait` waits for it, now and in
    the later transactions of this task. Raises `StartupError`, and what `wait` raises."""
    database = Database(settings.database_url, settings.node.effective_name)
    if database.is_sqlite:
        stack.enter_context(server_lock.lock_database(database.path))
    file = database.path if database.is_sqlite else None
    await asyncio.to_thread(file_permissions.make_private, settings.data_dir, file, settings.secret_key_path)
    if file is not None:
        await asyncio.to_thread(lost_database.check_not_lost, settings.data_dir, file, settings.secret_key_path)
    stack.push_async_callback(database.close)
    await wait.until_reachable(database.open)
    database.wait_in_outages(wait.until_reachable)
    return database, await secret_key.load(database, settings.secret_key_path)
