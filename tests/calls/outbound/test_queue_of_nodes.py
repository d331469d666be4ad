"""Queued calls of a node that drains or is down: another node dials them, each once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from calls.admission.concurrency_limits import ConcurrencyLimits
from config.clock import utc_now
from storage import tables
from storage.calls.calls import Call
from storage.nodes import nodes
from storage.nodes.nodes import DOWN_AFTER, Node
from tests.calls.call_service_harness import CallServiceHarness, WatchedDatabase, call_service, until
from tests.calls.outbound_calls import NumberAndAgent, callee, ended, queue, status_and_reason, store, stored
from tests.peers import postgresql


class Pair:
    """Nodes `a` and `b` of one database, and a number to call from."""

    def __init__(self, a: CallServiceHarness, b: CallServiceHarness, line: NumberAndAgent) -> None:
        self.a, self.b, self.line = a, b, line

    def dialled(self) -> list[str]:
        """The destinations of all INVITEs of both nodes, in order."""
        legs = [each.leg for harness in (self.a, self.b) for each in harness.callees.dialled]
        return sorted(str(leg.facts.to_addr.user) for leg in legs)

    async def hold_at_a(self, count: int = 1) -> list[Call]:
        """Queue calls at `a`, whose pacer does not let them be dialled; returns them once they are active there."""
        self.a.pacer.gate.clear()
        queued = [await queue(self.a, self.line, f"+491701{n}") for n in range(count)]
        await until(lambda: self.a.service.active_call_count == count)
        return queued

    async def lose_a(self) -> int:
        """Let `a` be silent, and `b` find that it is down. Returns the number of calls that are closed."""

        def silence(conn: sa.Connection) -> None:
            seen = nodes.database_time(conn) - DOWN_AFTER - timedelta(seconds=1)
            conn.execute(sa.update(tables.nodes).where(tables.nodes.c.name == "a").values(last_seen_at=seen))

        await self.b.database.write(silence)
        closed = await self.b.service.recover(("a",))
        self.b.service.start_queued_calls()  # as the notification does
        return closed


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    url = await asyncio.to_thread(lambda: postgresql.server().take_database())
    async with one(tmp_path, url, "a") as a, one(tmp_path, url, "b") as b:
        yield Pair(a, b, await a.create_number())
    await asyncio.to_thread(lambda: postgresql.server().give_back(url))


@asynccontextmanager
async def one(folder: Path, url: str, name: str) -> AsyncIterator[CallServiceHarness]:
    now = utc_now()
    beat = partial(nodes.store_heartbeat, node=Node(name, str(uuid4()), None, "1", "up", 0, 9, now, now))
    async with call_service(folder / name, database=WatchedDatabase(url, name), per_second=10) as made:
        await made.database.write(beat)
        yield made


async def test_a_survivor_dials_what_a_dead_node_has_not_dialled(pair: Pair) -> None:
    calls = await pair.hold_at_a(5)
    assert await pair.lose_a() == 0
    await callee(pair.b, 4)
    assert {(await stored(pair.b, call)).node for call in calls} == {"b"}
    pair.a.pacer.gate.set()  # it was only silent
    await until(lambda: not pair.a.service.active_calls())
    assert pair.dialled() == [f"+491701{n}" for n in range(5)]
    assert {(await stored(pair.b, call)).ended_at for call in calls} == {None}, "and it has ended none of them"


async def test_a_call_whose_invite_was_about_to_be_sent_is_not_dialled_again(pair: Pair) -> None:
    pair.a.callees.gate.clear()
    call = await queue(pair.a, pair.line)
    await pair.a.database.until(
        lambda conn: conn.execute(sa.select(tables.calls.c.call_sid)).scalar_one(), lambda sid: sid is not None
    )
    assert await pair.lose_a() == 1
    assert status_and_reason(await ended(pair.b, call)) == ("failed", "server_restart")
    assert not pair.b.service.active_calls()
    assert pair.dialled() == []
    pair.a.callees.gate.set()


async def test_each_call_is_dialled_once_while_its_node_goes_on_unnoticed(pair: Pair) -> None:
    numbers = [f"+49170{n:03}" for n in range(20)]

    def store_all(conn: sa.Connection) -> None:
        for number in numbers:
            store(conn, pair.line, number)

    await pair.a.database.write(store_all)
    pair.a.service.start_queued_calls()
    await callee(pair.a, 2)
    await pair.lose_a()
    not_dialled = sa.select(sa.func.count()).where(tables.calls.c.ended_at.is_(None), tables.calls.c.call_sid.is_(None))
    await pair.b.database.until(lambda conn: conn.execute(not_dialled).scalar_one(), lambda count: count == 0)
    services = pair.a.service, pair.b.service
    await until(lambda: all(each.has_leg for service in services for each in service.active_calls()))
    dialled = pair.dialled()
    assert len(set(dialled)) == len(dialled)
    assert set(dialled) <= set(numbers)
    assert pair.b.callees.dialled, "a was to have some left"


async def test_a_draining_node_gives_its_queue_to_another_that_is_up(pair: Pair) -> None:
    calls = await pair.hold_at_a(3)
    await pair.a.service.drain(5)
    pair.b.service.start_queued_calls()
    await callee(pair.b, 2)
    assert {(await stored(pair.b, call)).ended_at for call in calls} == {None}


async def test_a_call_that_is_stored_when_its_node_has_begun_to_drain_is_dialled_by_another(pair: Pair) -> None:
    pair.a.callees.gate.clear()
    await queue(pair.a, pair.line, "+4917010")
    await pair.a.database.until(
        lambda conn: conn.execute(sa.select(tables.calls.c.call_sid)).scalar_one(), lambda sid: sid is not None
    )
    draining = asyncio.create_task(pair.a.service.drain(30))
    await until(lambda: pair.a.service.is_draining)
    late = await pair.a.database.write(lambda conn: store(conn, pair.line, "+4917011"))
    pair.a.service.start_queued_calls()
    await pair.a.database.until(
        lambda conn: conn.execute(sa.select(tables.calls.c.node).where(tables.calls.c.id == late.id)).scalar_one(),
        lambda node: node is None,
    )
    pair.b.service.start_queued_calls()
    await callee(pair.b)
    pair.a.callees.gate.set()
    (await callee(pair.a)).ends(486)
    await draining
    assert (await stored(pair.b, late)).ended_at is None


async def test_the_last_node_ends_its_queue(pair: Pair) -> None:
    (call,) = await pair.hold_at_a()
    await pair.b.database.write(
        lambda conn: conn.execute(sa.update(tables.nodes).where(tables.nodes.c.name == "b").values(state="draining"))
    )
    await pair.a.service.drain(5)
    assert status_and_reason(await stored(pair.b, call)) == ("failed", "server_shutdown")


async def test_a_node_takes_only_as_many_queued_calls_as_it_has_places(pair: Pair) -> None:
    await pair.hold_at_a(3)
    pair.b.service._limits = ConcurrencyLimits(process=2)
    await pair.lose_a()
    await callee(pair.b, 1)
    await pair.b.service._queue.run()
    assert len(pair.b.callees.dialled) == 2


async def test_a_node_of_an_older_version_does_not_get_the_queue(pair: Pair) -> None:
    (call,) = await pair.hold_at_a()
    await pair.b.database.write(
        lambda conn: conn.execute(sa.update(tables.nodes).where(tables.nodes.c.name == "b").values(version="0.9"))
    )
    await pair.a.service.drain(5)
    assert status_and_reason(await stored(pair.b, call)) == ("failed", "server_shutdown")


async def test_the_last_node_ends_what_others_have_given_back(pair: Pair) -> None:
    (call,) = await pair.hold_at_a()
    pair.b.service._limits = ConcurrencyLimits(process=0)
    await pair.lose_a()
    await pair.b.service._queue.run()
    assert (await stored(pair.b, call)).node is None
    await pair.b.service.drain(5)
    assert status_and_reason(await stored(pair.b, call)) == ("failed", "server_shutdown")


async def test_a_queued_call_without_a_node_can_be_ended_at_a_full_node(pair: Pair) -> None:
    call, other = await pair.hold_at_a(2)
    pair.b.service._limits = ConcurrencyLimits(process=0)
    await pair.lose_a()
    assert await pair.b.service.hangup(call.id)
    assert status_and_reason(await stored(pair.b, call)) == ("no_answer", "api_hangup")
    assert (await stored(pair.b, other)).node is None
