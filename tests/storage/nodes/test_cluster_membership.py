"""Membership: what a node does about nodes that are down, and about a lease that it has lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from storage import tables
from storage.accounts import organizations
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.nodes import cluster_membership, leases, nodes
from storage.nodes.cluster_membership import ClusterMembership
from storage.nodes.leases import LeaseLost
from tests.storage.nodes.test_nodes import node, set_silent


@pytest.fixture(autouse=True)
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of the loop, a 40th of what they are."""
    monkeypatch.setattr(cluster_membership, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(cluster_membership, "DOWN_AFTER", timedelta(seconds=0.1))


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
    monkeypatch.setattr(cluster_membership, "DOWN_AFTER", timedelta(seconds=0.6))
    monkeypatch.setattr(cluster_membership, "MAX_GAP_S", 0.2)
    monkeypatch.setattr(cluster_membership, "RETRY_S", 0.05)
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


@asynccontextmanager
async def holder(database: Database) -> AsyncIterator[ClusterMembership]:
    """A node that has joined and sends heartbeats."""
    node_a = ClusterMembership(database, "a", None, "1")
    await node_a.join()
    running = asyncio.create_task(node_a.run())
    yield node_a
    running.cancel()
    await asyncio.wait((running,))
    await node_a.leave()


def give_away(conn: sa.Connection) -> None:
    """Give the lease to another node, as if this one had been silent for long."""
    conn.execute(sa.update(tables.leases).values(instance="other", epoch=tables.leases.c.epoch + 1))


async def run_in_group(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work())


def names(conn: sa.Connection) -> list[str]:
    return list(conn.execute(sa.select(tables.organizations.c.name)).scalars())


@pytest.mark.parametrize("hangs", [False, True])
async def test_after_a_heartbeat_that_hung_others_are_not_taken_for_down(
    database: Database, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    alive = await joined(database)
    monkeypatch.setattr(cluster_membership, "DOWN_AFTER", timedelta(seconds=20))
    alive._present_since_s -= 20
    if hangs:
        alive._valid_until_s = 0.0
    await alive._heartbeat()
    assert alive.sees_others is not hangs


async def test_a_node_takes_no_other_for_down_while_its_own_heartbeats_fail(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other transactions may succeed again some time before its heartbeats do."""
    alive = await joined(database)
    with monkeypatch.context() as patch:
        patch.setattr(alive, "_failing_since_s", 0.0)
        failing = alive.sees_others
    with monkeypatch.context() as patch:
        patch.setattr(alive, "_valid_until_s", 0.0)
        lapsed = alive.sees_others
    assert (failing, lapsed, alive.sees_others) == (False, False, True)


async def joined(database: Database) -> ClusterMembership:
    """A node that has sent a heartbeat, and sees the others."""
    alive = ClusterMembership(database, "alive", None, "1")
    await alive.join()
    async with asyncio.timeout(20):
        while not alive.sees_others:  # noqa: ASYNC110 - time is what it waits for
            await asyncio.sleep(0.01)
    return alive


@pytest.mark.parametrize("in_group", [False, True])
async def test_the_work_of_a_lost_lease_stores_nothing_more_and_ends(database: Database, in_group: bool) -> None:
    refused: asyncio.Queue[BaseException] = asyncio.Queue()

    async def work() -> None:
        await database.write(lambda conn: organizations.create(conn, "first"))
        await database.write(give_away)
        try:
            await database.write(lambda conn: organizations.create(conn, "second"))
        except BaseException as error:
            refused.put_nowait(error)
            raise

    async with holder(database) as node_a:
        alone = asyncio.create_task(node_a.run_alone("retention", partial(run_in_group, work) if in_group else work))
        assert isinstance(await asyncio.wait_for(refused.get(), 20), LeaseLost)
        assert await database.read(names) == ["first"]
        assert not alone.done(), "it waits for the lease"
        alone.cancel()
    assert refused.empty()


async def test_another_node_gets_a_lease_after_the_transaction_that_holds_it(database: Database) -> None:
    begun, released = threading.Event(), threading.Event()

    def write_slowly(conn: sa.Connection) -> None:
        begun.set()
        assert released.wait(10)

    async def work() -> None:
        await database.write(write_slowly, lock="one organization")

    async with holder(database) as node_a:
        alone = asyncio.create_task(node_a.run_alone("retention", work))
        await asyncio.to_thread(begun.wait, 10)
        taking = asyncio.create_task(database.write(give_away, lock="leases"))
        await asyncio.wait((taking,), timeout=0.1)
        assert not taking.done()
        released.set()
        await asyncio.gather(taking, alone)
    holders = await database.read(partial(leases.holders, prefix="retention"))
    assert holders == {"retention": "other"}
