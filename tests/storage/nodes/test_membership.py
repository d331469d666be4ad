"""Membership: what a node does about nodes that are down."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from storage.database.database import Database
from storage.database.errors import StorageUnavailable
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


async def test_after_an_outage_nodes_that_had_no_time_for_a_heartbeat_are_not_taken_for_down(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "DOWN_AFTER", timedelta(seconds=0.6))
    monkeypatch.setattr(membership, "MAX_GAP_S", 0.2)
    monkeypatch.setattr(membership, "RETRY_S", 0.05)
    closed, is_away, write = list[Collection[str]](), False, database.write

    async def write_unless_away(work: Any, **options: Any) -> Any:
        if is_away:
            raise StorageUnavailable("the database cannot be reached", unreachable=True)
        return await write(work, **options)

    async def close(names: Collection[str]) -> None:
        closed.append(names)

    monkeypatch.setattr(database, "write", write_unless_away)
    alive = ClusterMembership(database, "alive", None, "1")
    alive.on_down = close
    await alive.join()
    running = asyncio.create_task(alive.run())
    try:
        async with asyncio.timeout(20):
            while not alive.sees_others:  # noqa: ASYNC110 - time is what it waits for
                await asyncio.sleep(0.02)
            is_away = True
            await asyncio.sleep(0.4)
            other = node("other")
            await write(partial(nodes.store_heartbeat, node=other))
            await write(partial(set_silent, name="other"))  # its heartbeats failed, too
            is_away = False
            while alive._failing_since_s is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)
            await write(partial(nodes.store_heartbeat, node=other))
            await asyncio.sleep(0.8)
    finally:
        running.cancel()
        await alive.leave()
    assert closed == []
