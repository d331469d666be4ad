"""Work that is spread over nodes by leases, on both engines."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import sqlalchemy as sa

from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.nodes import leases, nodes, work_share
from storage.nodes.nodes import Node, NodeState
from storage.nodes.work_share import AllWork, LeasedShare
from tests.storage.nodes.test_nodes import node, set_silent

KEYS = [f"{number:02}" for number in range(30)]


@dataclass
class Member:
    """A node and its share."""

    database: Database
    node: Node
    share: LeasedShare
    changes: int = 0

    async def beat(self, state: NodeState = "up", *, takes_over: bool = True) -> None:
        """Send a heartbeat, and update the share."""
        self.node = replace(self.node, state=state)
        await self.database.write(lambda conn: nodes.store_heartbeat(conn, self.node))
        await self.share.update(self.database, takes_over=takes_over)

    @property
    def does(self) -> set[str]:
        """The keys of what it does."""
        return {key for key in KEYS if self.share.does(key)}

    def count(self) -> None:
        """Count a change."""
        self.changes += 1


async def member(database: Database, name: str, *, takes_part: bool = True) -> Member:
    """A node that is up, without leases."""
    started = node(name)
    made = Member(database, started, LeasedShare("work", 1000, started.instance, takes_part=takes_part))
    made.share.want(KEYS)
    made.share.on_change = made.count
    await database.write(lambda conn: nodes.store_heartbeat(conn, made.node))
    return made


async def silence(database: Database, name: str) -> None:
    await database.write(lambda conn: set_silent(conn, name))


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node stops at its next heartbeat what another one has acquired."""
    monkeypatch.setattr(work_share, "GRACE_S", -1.0)


async def test_two_nodes_share_the_work_and_a_survivor_takes_over_at_once(database: Database) -> None:
    a, b = await member(database, "a"), await member(database, "b")
    for each in (a, b):
        await each.beat()
    assert len(a.does) == len(b.does) == 15 and a.does | b.does == set(KEYS)
    assert b.share.holder(min(a.does)) == "a"
    told: list[str | None] = []
    a.share.on_holders = lambda: told.append(a.share.holder(min(b.does)))
    for each in (a, a, b):
        await each.beat()
    assert (a.changes, b.changes) == (1, 1), "no change without a reason"
    assert told == ["b"]
    await silence(database, "a")
    await b.beat(takes_over=False)
    assert len(b.does) == 15, "after an outage of the database the other node may live"
    await b.beat()
    assert b.does == set(KEYS)
    await a.beat()
    assert a.does == set(), "its leases are known to be another node's"


async def test_a_node_that_joins_gets_its_share_and_both_work_until_it_has_begun(database: Database) -> None:
    a = await member(database, "a")
    await a.beat()
    assert a.does == set(KEYS) and a.share.is_handed_over, "no other node is up"
    b = await member(database, "b")
    await a.beat()
    assert a.does == set(KEYS) and a.share.is_changing_hands
    await b.beat()
    assert len(b.does) == 15 and b.does < a.does
    for _ in range(2):
        await a.beat()
    assert a.does | b.does == set(KEYS) and not a.does & b.does and not a.share.is_changing_hands


async def test_a_draining_node_works_on_until_others_have_its_leases(database: Database) -> None:
    a, b = await member(database, "a"), await member(database, "b")
    for each in (a, b):
        await each.beat()
    await a.beat("draining")
    assert len(a.does) == 15 and not a.share.is_handed_over
    await b.beat()
    assert b.does == set(KEYS)
    for _ in range(2):
        await a.beat("draining")
    assert a.does == set() and a.share.is_handed_over


async def test_a_node_goes_on_without_the_database(database: Database) -> None:
    a = await member(database, "a")
    await a.beat()
    await database.close()
    with pytest.raises(StorageUnavailable):
        await a.share.update(database, takes_over=True)
    assert a.does == set(KEYS) and a.changes == 1


async def test_leases_of_deleted_work_are_deleted(database: Database) -> None:
    a = await member(database, "a")
    await a.beat()
    a.share.want(KEYS[:2])
    await a.beat()
    assert a.does == {"00", "01"}
    assert await database.read(lambda conn: len(leases.holders(conn, "work:"))) == 2


async def test_a_thousand_leases_are_acquired_by_few_statements(database: Database) -> None:
    names = [f"work:{number}" for number in range(1000)]
    first, second = node("a"), node("b")

    def check(conn: sa.Connection) -> int:
        for each in (first, second):
            nodes.store_heartbeat(conn, each)
        leases.acquire(conn, names, first.instance)
        leases.release(conn, first.instance)
        statements: list[str] = []
        sa.event.listen(conn, "before_cursor_execute", lambda *facts: statements.append(facts[2]))
        taken = leases.acquire(conn, names, second.instance)
        count = len(statements)
        assert {(each.instance, each.epoch) for each in taken} == {(second.instance, 2)}
        assert taken == sorted(leases.held_by(conn, second.instance), key=lambda each: each.name)
        return count

    assert await database.write(check) <= 5


async def test_the_only_server_of_a_database_does_all_work() -> None:
    work = AllWork()
    work.want(KEYS)
    assert work.does("00") and work.holder("00") is None


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic time of shares; a list of one."""
    now = [1000.0]
    monkeypatch.setattr(work_share, "monotonic", lambda: now[0])
    return now


async def beat_for(now_s: list[float], seconds: float, *members: Member) -> None:
    """Let heartbeats follow each other, one of each member every 2 s."""
    end_s = now_s[0] + seconds
    while now_s[0] < end_s:
        for each in members:
            await each.beat()
        now_s[0] += 2.0


async def test_a_node_that_takes_no_part_keeps_no_share_from_the_others(database: Database, now_s: list[float]) -> None:
    a, b = await member(database, "a"), await member(database, "b")
    standby = await member(database, "standby", takes_part=False)
    await beat_for(now_s, 16, a, standby, b)
    assert len(a.does) == len(b.does) == 15 and a.does | b.does == set(KEYS) and not standby.does
    await silence(database, "a")
    await b.beat()
    assert b.does == set(KEYS), "without a wait, because the standby server is known to take nothing"
    await beat_for(now_s, 300, b, standby)
    assert b.does == set(KEYS)


async def test_a_piece_that_a_node_cannot_do_goes_to_another_and_the_shares_stay_even(
    database: Database, now_s: list[float]
) -> None:
    a, b, c = [await member(database, name) for name in "abc"]
    await beat_for(now_s, 2, a, b, c)
    bad = max(a.does)
    a.share.refuse([bad])
    await a.beat()
    assert bad in a.does, "it goes on until another node has it"
    await beat_for(now_s, 20, a, b, c)
    assert bad not in a.does and bad in b.does | c.does
    assert [len(each.does) for each in (a, b, c)] == [10, 10, 10]
    holder = b if bad in b.does else c
    await beat_for(now_s, 60, a, b, c)
    assert bad in holder.does, "it does not go back"


async def test_a_node_that_can_do_nothing_gives_all_away_and_gets_nothing_back_for_ten_minutes(
    database: Database, now_s: list[float]
) -> None:
    a, b = await member(database, "a"), await member(database, "b")
    await beat_for(now_s, 2, a, b)
    a.share.refuse(KEYS)
    await beat_for(now_s, 20, a, b)
    assert a.does == set() and b.does == set(KEYS)
    end_s = now_s[0] + work_share.REFUSED_S - 40
    while now_s[0] < end_s:
        await beat_for(now_s, 2, a, b)
        assert a.does == set() and b.does == set(KEYS)
    await beat_for(now_s, 400, a, b)
    assert len(a.does) == 15


async def test_what_no_node_can_do_is_kept_by_one(database: Database, now_s: list[float]) -> None:
    a, b = await member(database, "a"), await member(database, "b")
    await beat_for(now_s, 2, a, b)
    for _ in range(3):
        for each in (a, b):
            each.share.refuse(each.does)
        await beat_for(now_s, 30, a, b)
    assert a.does | b.does == set(KEYS) and not a.does & b.does
    assert not a.share.is_changing_hands and not b.share.is_changing_hands
    held = await database.read(lambda conn: leases.counts(conn))
    assert sum(held.values()) == len(KEYS)


async def test_the_only_node_refuses_nothing(database: Database, now_s: list[float]) -> None:
    a = await member(database, "a")
    await a.beat()
    a.share.refuse(KEYS)
    await beat_for(now_s, 30, a)
    assert a.does == set(KEYS) and not a.share.is_changing_hands


async def test_a_refused_piece_is_taken_again_when_no_other_node_is_left(
    database: Database, now_s: list[float]
) -> None:
    a, b = await member(database, "a"), await member(database, "b")
    await beat_for(now_s, 2, a, b)
    a.share.refuse(KEYS)
    await beat_for(now_s, 20, a, b)
    await silence(database, "b")
    await beat_for(now_s, 14, a)
    assert a.does == set(KEYS)
