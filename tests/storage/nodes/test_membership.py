"""Membership: what a node does about nodes that are down."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta
from functools import partial

import pytest

from storage.database.database import Database
from storage.nodes import membership, nodes
from storage.nodes.membership import ClusterMembership
from tests.storage.nodes.test_nodes import node, set_silent


@pytest.fixture(autouse=True)
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of the loop, a 40th of what they are."""
    monkeypatch.setattr(membership, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(membership, "DOWN_AFTER", timedelta(seconds=0.1))


async def test_the_calls_of_a_node_that_is_down_are_closed_once_and_again_after_a_failure(database: Database) -> None:
    closed: asyncio.Queue[list[str]] = asyncio.Queue()
    failures = [RuntimeError("closing failed")]

    async def close(names: Collection[str]) -> None:
        closed.put_nowait(sorted(names))
        if failures:
            raise failures.pop()

    alive = ClusterMembership(database, "alive", None, "1")
    alive.on_down = close
    await alive.join()
    for name in ("dead", "other"):
        await database.write(partial(nodes.store_heartbeat, node=node(name)))
    await database.write(partial(set_silent, name="dead"))
    running = asyncio.create_task(alive.run())
    try:
        async with asyncio.timeout(20):
            assert [await closed.get() for _ in range(2)] == [["dead"]] * 2, "again, because the first time failed"
            await database.write(partial(set_silent, name="other"))
            assert await closed.get() == ["other"], "not the dead one again"
            await database.write(partial(nodes.store_heartbeat, node=node("dead")))
            await database.write(partial(set_silent, name="dead"))
            assert await closed.get() == ["dead"], "another instance of it"
    finally:
        running.cancel()
        await alive.leave()
    assert closed.empty()
