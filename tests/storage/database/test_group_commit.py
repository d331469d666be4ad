"""Waiting writes share a commit, and fail separately."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from config.errors import Conflict
from storage.accounts import organizations
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.database.group_commit import MAX_DEFERRABLE, MAX_GROUP
from tests.storage.transaction_gate import Gate, add, names, names_in

Work = Callable[[sa.Connection], object]


@pytest.fixture(autouse=True)
def _a_commit_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit has no time limit, so that the load of the machine has no effect."""
    monkeypatch.setattr("storage.database.sqlite.connection_thread.MAX_GROUP_S", 60.0)


def _named(name: str) -> Work:
    return lambda conn: organizations.create(conn, name)


async def _behind_a_gate(database: Database, *writes: Work) -> list[object]:
    """The outcomes of writes that are queued during another write."""
    gate = Gate()
    first = asyncio.create_task(database.write(lambda conn: gate.wait()))
    await gate.reached()
    waiting = [asyncio.create_task(database.write(work)) for work in writes]
    await asyncio.sleep(0)
    gate.open()
    await first
    return list(await asyncio.gather(*waiting, return_exceptions=True))


async def _commits(database: Database) -> Callable[[], int]:
    """Counts the commits from now on."""
    seen: list[None] = []

    def listen(conn: sa.Connection) -> None:
        sa.event.listen(conn.engine, "commit", lambda _conn: seen.append(None))

    await database.write(listen)
    return lambda: len(seen) - 1


async def test_waiting_writes_share_a_commit(database: Database) -> None:
    commits = await _commits(database)
    await _behind_a_gate(database, *(_named(str(number)) for number in range(20)))
    assert commits() == 2
    assert len(await names(database)) == 20


async def test_a_commit_has_at_most_max_group_writes(database: Database) -> None:
    commits = await _commits(database)
    await _behind_a_gate(database, *(_named(str(number)) for number in range(MAX_GROUP + 1)))
    assert commits() == 3


async def test_a_write_that_raises_is_rolled_back_alone(database: Database) -> None:
    def half(conn: sa.Connection) -> None:
        organizations.create(conn, "half")
        organizations.create(conn, "first")

    outcomes = await _behind_a_gate(database, _named("first"), half, _named("last"))
    assert isinstance(outcomes[1], Conflict)
    assert sorted(await names(database)) == ["first", "last"]


async def test_a_write_that_raises_stop_iteration_blocks_no_caller(database: Database) -> None:
    outcomes = await _behind_a_gate(database, _named("first"), lambda conn: next(iter(())), _named("last"))
    assert isinstance(outcomes[1], RuntimeError)
    assert sorted(await names(database)) == ["first", "last"]


async def test_a_write_sees_earlier_writes_of_its_group(database: Database) -> None:
    outcomes = await _behind_a_gate(database, _named("a"), names_in, _named("b"), names_in)
    assert outcomes[1] == ["a"]
    assert sorted(outcomes[3]) == ["a", "b"]  # type: ignore[call-overload]


async def test_when_sqlite_rolls_back_the_transaction_every_write_fails(database: Database) -> None:
    def give_up(conn: sa.Connection) -> None:
        conn.connection.rollback()
        raise sqlite3.OperationalError("disk I/O error")

    outcomes = await _behind_a_gate(database, _named("before"), give_up, _named("after"))
    assert all(isinstance(outcome, sqlite3.OperationalError | StorageUnavailable) for outcome in outcomes)
    assert await names(database) == []
    await add(database, "next")
    assert await names(database) == ["next"]


async def test_a_write_of_a_cancelled_caller_is_committed(database: Database) -> None:
    gate = Gate()
    first = asyncio.create_task(database.write(lambda conn: gate.wait()))
    await gate.reached()
    cancelled, stays = (asyncio.create_task(add(database, name)) for name in ("gone", "stays"))
    await asyncio.sleep(0)
    cancelled.cancel()
    gate.open()
    await asyncio.gather(first, stays)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert sorted(await names(database)) == ["gone", "stays"]


async def test_closing_waits_for_pending_writes(database: Database) -> None:
    gate = Gate()

    def late(conn: sa.Connection) -> None:
        gate.wait()
        organizations.create(conn, "late")

    writing = asyncio.create_task(database.write(late))
    await gate.reached()
    waiting = asyncio.create_task(add(database, "later"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    with pytest.raises(StorageUnavailable):
        await add(database, "too late")
    gate.open()
    await asyncio.gather(writing, waiting, closing)
    await database.open()
    assert sorted(await names(database)) == ["late", "later"]


async def test_deferrable_writes_follow_others_a_few_in_each_commit(database: Database) -> None:
    done: list[str] = []

    def noting(name: str) -> Work:
        return lambda conn: done.append(name)

    commits, gate = await _commits(database), Gate()

    def wait(conn: sa.Connection) -> None:
        gate.wait()

    first = asyncio.create_task(database.write(wait))
    await gate.reached()
    patient = [
        asyncio.create_task(database.write(noting(str(number)), deferrable=True))
        for number in range(MAX_DEFERRABLE + 1)
    ]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(database.write(noting("caller")))
    await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(first, waiting, *patient)
    assert done == ["caller", *(str(number) for number in range(MAX_DEFERRABLE + 1))]
    assert commits() == 3


async def _in_order_behind_a_gate(database: Database, *owners: str | None) -> list[str | None]:
    """Queues writes of these owners in order; returns the owners in the order of execution."""
    done: list[str | None] = []

    def noting(owner: str | None) -> Work:
        return lambda conn: done.append(owner)

    gate = Gate()
    first = asyncio.create_task(database.write(lambda conn: gate.wait(), owner="first"))
    await gate.reached()
    waiting = [asyncio.create_task(database.write(noting(owner), owner=owner)) for owner in owners]
    await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(first, *waiting)
    return done


async def test_owners_take_turns(database: Database) -> None:
    done = await _in_order_behind_a_gate(database, *["many"] * 100, "few", None, "few")
    assert done == ["many", "few", None, "many", "few", *["many"] * 98]


async def test_a_slow_commit_takes_no_further_writes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.database.sqlite.connection_thread.MAX_GROUP_S", 0.0)
    commits = await _commits(database)
    done = await _in_order_behind_a_gate(database, "many", "many", "many", "few", None)
    assert done == ["many", "few", None, "many", "many"]
    assert commits() == 6


async def test_writes_left_over_by_a_commit_keep_their_order(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.database.sqlite.connection_thread.MAX_GROUP_S", 0.0)
    done: list[int] = []

    def noting(number: int) -> Work:
        return lambda conn: done.append(number)

    gate = Gate()
    first = asyncio.create_task(database.write(lambda conn: gate.wait()))
    await gate.reached()
    waiting = [asyncio.create_task(database.write(noting(number), deferrable=number > 2)) for number in range(6)]
    await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(first, *waiting)
    assert done == list(range(6))
