"""The order of reads: those of calls first, organizations in turn, none with all connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa

from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.database.sqlite.engine import READERS
from tests.storage.transaction_gate import PATIENCE_S, Gate, names_in

Owner = str | None


@asynccontextmanager
async def _blocked(database: Database, *owners: Owner) -> AsyncIterator[list[Gate]]:
    """Reads of these owners run until the block ends."""
    gates = [Gate() for _ in owners]
    reading = [
        asyncio.create_task(database.read(lambda _, gate=gate: gate.wait(), owner=owner))  # type: ignore[misc]
        for gate, owner in zip(gates, owners, strict=True)
    ]
    for gate in gates:
        await gate.reached()
    try:
        yield gates
    finally:
        for gate in gates:
            gate.open()
        await asyncio.gather(*reading)


def _noting(done: list[Owner], owner: Owner) -> Callable[[sa.Connection], None]:
    return lambda _: done.append(owner)


async def _read(database: Database, owners: Iterable[Owner], done: list[Owner]) -> list[asyncio.Task[None]]:
    """Queues reads that record their owners."""
    tasks = [asyncio.create_task(database.read(_noting(done, owner), owner=owner)) for owner in owners]
    await asyncio.sleep(0)
    return tasks


async def test_reads_of_calls_do_not_wait_for_other_reads(database: Database) -> None:
    async with _blocked(database, *[None] * READERS):
        done: list[Owner] = []
        behind = await _read(database, ["many"] * 50, done)
        async with asyncio.timeout(PATIENCE_S / 2):
            assert await database.read(names_in, priority="calls") == []
        assert done == []
    await asyncio.gather(*behind)


async def test_reads_of_calls_use_idle_shared_connections(database: Database) -> None:
    gates = [Gate() for _ in range(1 + READERS)]
    reading = [
        asyncio.create_task(database.read(lambda _, gate=gate: gate.wait(), priority="calls"))  # type: ignore[misc]
        for gate in gates
    ]
    for gate in gates:
        await gate.reached()
        gate.open()
    await asyncio.gather(*reading)


async def test_an_organization_never_has_all_connections(database: Database) -> None:
    async with _blocked(database, *["many"] * (READERS - 1)):
        done: list[Owner] = []
        behind = await _read(database, ["many"] * 50, done)
        async with asyncio.timeout(PATIENCE_S / 2):
            assert await database.read(names_in, owner="few") == []
        assert done == []
    await asyncio.gather(*behind)
    assert done == ["many"] * 50


async def test_organizations_take_turns(database: Database) -> None:
    done: list[Owner] = []
    owners = [*["many"] * 20, "few", None, "few", "one"]
    async with _blocked(database, "x", "y", None) as gates:
        waiting = await _read(database, owners, done)
        gates[0].open()  # one reader for all of them: what follows has one order
        await asyncio.gather(*waiting)
    assert done == ["many", "few", None, "one", "many", "few", *["many"] * 18]


async def test_a_pending_read_of_a_cancelled_caller_is_skipped(database: Database) -> None:
    done: list[Owner] = []
    async with _blocked(database, *[None] * READERS):
        waiting = await _read(database, ["gone", "stays"], done)
        waiting[0].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert done == ["stays"]
    await _read(database, ["gone"] * READERS, done)
    assert await database.read(names_in, owner="gone") == []


async def test_a_read_that_raises_passes_its_error_on_and_frees_its_connection(database: Database) -> None:
    def fail(_: sa.Connection) -> None:
        raise LookupError("no such thing")

    for _ in range(2 * READERS):
        with pytest.raises(LookupError, match="no such thing"):
            await database.read(fail, owner="one")
    assert await database.read(names_in, owner="one") == []


async def test_closing_waits_for_running_reads(database: Database) -> None:
    done: list[Owner] = []
    async with _blocked(database, *[None] * READERS):
        waiting = await _read(database, ["later"] * 5, done)
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        with pytest.raises(StorageUnavailable, match="not open"):
            await database.read(names_in)
    await asyncio.gather(closing, *waiting)
    assert done == ["later"] * 5


async def test_a_cancelled_close_blocks_no_waiting_read(database: Database) -> None:
    done: list[Owner] = []
    async with _blocked(database, *[None] * READERS):
        waiting = await _read(database, ["later"] * 5, done)
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        closing.cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, StorageUnavailable) for each in outcomes)
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert done == []
