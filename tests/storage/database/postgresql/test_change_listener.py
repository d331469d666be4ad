"""Notifications of changes: a commit of one node is known to the others within a second, also after a lost session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from storage.accounts import organizations
from storage.database.database import Database
from storage.database.postgresql import change_listener
from storage.database.postgresql.connection import open_session
from tests.peers import postgresql

WITHIN_S = 1.0
END_LISTENERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND query LIKE 'LISTEN%'"


class Node:
    """A database as one node has it, and the changes that it is told of."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.changes: asyncio.Queue[frozenset[str] | None] = asyncio.Queue()
        self.database.on_change = self.changes.put_nowait

    async def told_of(self, table: str | None) -> float:
        """Wait until it is told of a change of this table, or (None) that it may have missed changes; returns how long
        that took, seconds."""
        began = time.monotonic()
        async with asyncio.timeout(10):
            while (changed := await self.changes.get()) is None or table not in changed:
                if changed is None and table is None:
                    break
        return time.monotonic() - began


@pytest.fixture
async def nodes() -> AsyncIterator[tuple[Node, Node]]:
    server = await asyncio.to_thread(postgresql.server)
    url = await asyncio.to_thread(server.take_database)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, server.give_back, url)
        opened = Node(url), Node(url)
        for each in opened:
            await each.database.open()
            stack.push_async_callback(each.database.close)
            await each.told_of(None)
        yield opened


async def create(node: Node, name: str) -> None:
    await node.database.write(lambda conn: organizations.create(conn, name))


async def test_a_commit_is_known_to_the_other_node_within_a_second(nodes: tuple[Node, Node]) -> None:
    writer, other = nodes
    number = other.database.change_number()
    await create(writer, "first")
    assert await other.told_of("organizations") < WITHIN_S
    assert other.database.change_number() != number


async def test_a_transaction_that_is_rolled_back_is_no_change(nodes: tuple[Node, Node]) -> None:
    writer, other = nodes

    def fail(conn: object) -> None:
        raise RuntimeError("rolled back")

    with pytest.raises(RuntimeError):
        await writer.database.write(lambda conn: fail(organizations.create(conn, "first")))
    await create(writer, "second")
    await other.told_of("organizations")
    rest = [other.changes.get_nowait() for _ in range(other.changes.qsize())]
    assert not [each for each in rest if each is None or "organizations" in each]


async def test_a_node_that_lost_its_session_is_told_that_it_may_have_missed_changes(nodes: tuple[Node, Node]) -> None:
    writer, other = nodes
    server = await asyncio.to_thread(postgresql.server)
    await asyncio.to_thread(server.execute, END_LISTENERS.format(other.database.url.database))
    await create(writer, "while away")
    await other.told_of(None)
    await create(writer, "later")
    assert await other.told_of("organizations") < WITHIN_S


async def test_an_outage_that_begins_before_the_server_listens_ends_with_a_reconnect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outages = iter([psycopg.OperationalError("the server is away")])

    def open_or_fail(url: sa.URL) -> psycopg.Connection[Any]:
        if (error := next(outages, None)) is not None:
            raise error
        return open_session(url)

    monkeypatch.setattr(change_listener, "open_session", open_or_fail)
    monkeypatch.setattr(change_listener, "POLL_S", 0.01)
    server = await asyncio.to_thread(postgresql.server)
    database, reconnected = Database(await asyncio.to_thread(server.take_database)), asyncio.Event()
    database.on_reconnect = reconnected.set
    await database.open()
    async with asyncio.timeout(10):
        await reconnected.wait()
    await database.close()
