"""Transactions that lose their connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from storage import tables
from storage.accounts import organizations
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.database.postgresql import connection_thread
from storage.database.postgresql.connection import raw_connection
from storage.database.postgresql.connection_thread import ConnectionThread
from tests.peers import postgresql
from tests.storage.transaction_gate import Gate

T = TypeVar("T")
OWN_DATABASE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'"


@pytest.fixture
async def database(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    monkeypatch.setattr(connection_thread, "RECONNECT_S", (0.0, 0.0))
    server = await asyncio.to_thread(postgresql.server)
    url = await asyncio.to_thread(server.take_database)
    opened = Database(url)
    await opened.open()
    yield opened
    await opened.close()
    await asyncio.to_thread(server.give_back, url)


async def end_sessions(database: Database) -> None:
    """End all connections to the database, as a restart of the server does."""
    server = await asyncio.to_thread(postgresql.server)
    await asyncio.to_thread(server.execute, OWN_DATABASE.format(database.url.database))


def names(conn: sa.Connection) -> list[str]:
    return list(conn.execute(sa.select(tables.organizations.c.name)).scalars())


async def test_a_transaction_begins_on_a_new_connection_if_the_old_one_is_dead(database: Database) -> None:
    for name in ("first", "second"):
        await end_sessions(database)
        await database.write(lambda conn: organizations.create(conn, name))  # noqa: B023
        await end_sessions(database)
        assert name in await database.read(names)
        assert database.away_since_s is None


@pytest.mark.parametrize("idle_before", ["a statement", "the commit"])
async def test_a_transaction_that_the_server_ends_because_it_was_idle_runs_again(
    database: Database, idle_before: str
) -> None:
    attempts: list[int] = []

    def idle(conn: sa.Connection) -> None:
        if len(attempts) == 1:
            conn.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
            time.sleep(0.2)

    def work(conn: sa.Connection) -> None:
        attempts.append(len(attempts))
        organizations.create(conn, f"attempt {len(attempts)}")
        if idle_before == "a statement":
            idle(conn)
        organizations.create(conn, f"later {len(attempts)}")
        if idle_before == "the commit":
            idle(conn)

    await database.write(work)
    assert sorted(await database.read(names)) == ["attempt 2", "later 2"], "the first attempt was rolled back"
    assert database.away_since_s is None


async def test_writes_that_share_a_transaction_run_again_when_the_server_ends_it_because_it_was_idle(
    database: Database,
) -> None:
    attempts: list[int] = []

    def idle(conn: sa.Connection) -> None:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            conn.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
            time.sleep(0.05)
        raise ValueError("a write that fails is rolled back to its savepoint")

    gate = Gate()
    first = asyncio.create_task(database.write(lambda _: gate.wait(), lock="one"))
    await gate.reached()
    later = [
        asyncio.create_task(database.write(lambda conn: organizations.create(conn, "before"), lock="one")),
        asyncio.create_task(database.write(idle, lock="one")),
    ]
    await asyncio.sleep(0)
    gate.open()
    await first
    _, failed = await asyncio.gather(*later, return_exceptions=True)
    assert isinstance(failed, ValueError)
    assert (len(attempts), await database.read(names)) == (2, ["before"])


async def test_a_connection_that_is_lost_at_the_commit_leaves_the_outcome_unknown(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, server = ConnectionThread._commit, await asyncio.to_thread(postgresql.server)

    def commit(self: ConnectionThread, transaction: sa.RootTransaction) -> None:
        monkeypatch.setattr(ConnectionThread, "_commit", real)
        assert self._core is not None
        server.execute(f"SELECT pg_terminate_backend({raw_connection(self._core).info.backend_pid})")
        real(self, transaction)

    monkeypatch.setattr(ConnectionThread, "_commit", commit)
    with pytest.raises(StorageUnavailable) as caught:
        await database.write(lambda conn: organizations.create(conn, "lost"))
    assert (caught.value.outcome_unknown, caught.value.is_outage) == (True, True)
    assert database.away_since_s is not None
    await database.write(lambda conn: organizations.create(conn, "next"))
    assert (await database.read(names), database.away_since_s) == (["next"], None)


async def test_what_begins_when_the_server_can_be_reached_again_finds_no_connection_in_a_pause(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_thread, "RECONNECT_S", (60.0, 60.0))
    server, reconnected = await asyncio.to_thread(postgresql.server), asyncio.Event()
    database.on_reconnect = reconnected.set

    async def read_on_all_connections() -> list[list[str] | BaseException]:
        return await asyncio.gather(*(database.read(names) for _ in range(20)), return_exceptions=True)

    await asyncio.to_thread(server.stop)
    try:
        assert all(isinstance(each, StorageUnavailable) for each in await read_on_all_connections())
    finally:
        await asyncio.to_thread(server.start)
    async with asyncio.timeout(20):
        await reconnected.wait()
    assert await read_on_all_connections() == [[]] * 20


async def test_only_the_task_that_starts_the_server_waits_in_an_outage(database: Database) -> None:
    attempts: list[bool] = []

    async def wait(attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            result = await attempt()
        except StorageUnavailable as error:
            attempts.append(error.is_outage)
            await asyncio.to_thread(server.start)
            return await attempt()
        attempts.append(False)
        return result

    server = await asyncio.to_thread(postgresql.server)
    database.wait_in_outages(wait)
    await asyncio.to_thread(server.stop)
    with pytest.raises(StorageUnavailable):
        await asyncio.create_task(database.read(names))
    await database.write(lambda conn: organizations.create(conn, "of the start"))
    assert await database.read(names) == ["of the start"]
    assert attempts == [True, False]
