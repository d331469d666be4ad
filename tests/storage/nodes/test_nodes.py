"""Nodes: heartbeats and leases."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from config.errors import StartupError
from storage import tables
from storage.database.database import Database
from storage.nodes import leases, nodes
from storage.nodes.cluster_membership import ClusterMembership
from storage.nodes.leases import LeaseLost
from storage.nodes.nodes import DOWN_AFTER, Node, NodeState, NodeSuperseded


def node(name: str, state: NodeState = "up") -> Node:
    now = utc_now()
    return Node(name, str(uuid4()), None, "1", state, 0, 10, now, now)


def set_silent(conn: sa.Connection, name: str) -> None:
    """Let the node's last heartbeat be too long ago."""
    seen = nodes.database_time(conn) - DOWN_AFTER - timedelta(milliseconds=1)
    conn.execute(sa.update(tables.nodes).where(tables.nodes.c.name == name).values(last_seen_at=seen))


async def test_a_node_is_down_without_heartbeats_and_when_it_was_stopped(database: Database) -> None:
    def check(conn: sa.Connection) -> None:
        for each in (node("a"), node("b", "draining"), node("c", "down"), node("d")):
            nodes.store_heartbeat(conn, each)
        set_silent(conn, "d")
        found = {each.name: each.state for each in nodes.all_of(conn)}
        assert found == {"a": "up", "b": "draining", "c": "down", "d": "down"}

    await database.write(check)


async def test_a_second_process_with_the_name_of_a_live_node_does_not_start(database: Database) -> None:
    alive = ClusterMembership(database, "a", None, "1")
    await alive.join()
    running = asyncio.create_task(alive.run())
    with pytest.raises(StartupError, match="another node named a uses this database"):
        await ClusterMembership(database, "a", None, "1").join()
    running.cancel()
    await alive.leave()
    await ClusterMembership(database, "a", None, "1").join()


async def test_a_node_starts_again_once_its_killed_instance_is_down(database: Database) -> None:
    await ClusterMembership(database, "a", None, "1").join()
    joining = asyncio.create_task(ClusterMembership(database, "a", None, "1").join())
    await asyncio.wait((joining,), timeout=0.1)
    assert not joining.done()
    await database.write(partial(set_silent, name="a"))
    await joining


async def test_a_lease_is_free_once_its_holder_is_down_and_has_a_new_epoch(database: Database) -> None:
    first, second = node("a"), node("b")

    def check(conn: sa.Connection) -> None:
        for each in (first, second):
            nodes.store_heartbeat(conn, each)
        (mine,) = leases.acquire(conn, ["work"], first.instance)
        assert leases.acquire(conn, ["work"], second.instance) == []
        leases.require(conn, mine)
        set_silent(conn, "a")
        (theirs,) = leases.acquire(conn, ["work"], second.instance)
        assert (theirs.instance, theirs.epoch) == (second.instance, mine.epoch + 1)
        nodes.store_heartbeat(conn, first)
        assert leases.acquire(conn, ["work"], first.instance) == []
        with pytest.raises(LeaseLost):
            leases.require(conn, mine)
        leases.require(conn, theirs)

    await database.write(check)


async def test_a_released_lease_is_free_at_once_and_its_old_holder_cannot_use_it(database: Database) -> None:
    first, second = node("a"), node("b")

    def check(conn: sa.Connection) -> None:
        for each in (first, second):
            nodes.store_heartbeat(conn, each)
        taken = leases.acquire(conn, ["x", "y", "z"], first.instance, limit=2)
        assert (
            [each.name for each in taken] == ["x", "y"] == [each.name for each in leases.held_by(conn, first.instance)]
        )
        assert leases.counts(conn) == {first.instance: 2}
        assert leases.release(conn, first.instance, ["x"]) == 1
        assert [each.name for each in leases.acquire(conn, ["x", "y", "z"], second.instance)] == ["x", "z"]
        with pytest.raises(LeaseLost):
            leases.require(conn, taken[0])
        leases.require(conn, taken[1])
        assert leases.release(conn, first.instance) == 1

    await database.write(check)


async def test_a_restarted_node_has_no_lease_of_its_earlier_instance(database: Database) -> None:
    before, after = node("a"), node("a")

    def check(conn: sa.Connection) -> None:
        nodes.store_heartbeat(conn, before)
        (old,) = leases.acquire(conn, ["work"], before.instance)
        with pytest.raises(NodeSuperseded):
            nodes.store_heartbeat(conn, after)
        set_silent(conn, "a")
        nodes.store_heartbeat(conn, after)
        with pytest.raises(NodeSuperseded):
            nodes.store_heartbeat(conn, before)
        assert leases.held_by(conn, after.instance) == []
        (new,) = leases.acquire(conn, ["work"], after.instance)
        assert new.epoch == old.epoch + 1

    await database.write(check)


async def test_nodes_that_have_not_been_seen_for_long_are_forgotten(database: Database) -> None:
    def check(conn: sa.Connection) -> None:
        now = nodes.store_heartbeat(conn, node("a")).at
        assert nodes.forget(conn, now) == 0
        assert nodes.forget(conn, now + timedelta(milliseconds=1)) == 1
        assert nodes.all_of(conn) == []

    await database.write(check)
