"""Organizations take turns at the database, also through the API."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from storage import tables
from storage.database.sqlite.engine import READERS
from tests.api.conftest import Api
from tests.database_template import sqlite_only
from tests.storage.transaction_gate import PATIENCE_S, Gate

MANY = 30


async def test_reads_of_one_organization_leave_a_reader_to_another(api: Api) -> None:
    other = await api.as_another_organization()
    database = api.services.database
    for each in (api, other):  # their keys are cached from now on
        assert (await each("GET", "/agents"))[0] == 200
    gates = [Gate() for _ in range(READERS - 1)]
    reading = [
        asyncio.create_task(database.read(lambda conn, gate=gate: gate.wait(conn), owner=api.organization_id))  # type: ignore[misc]
        for gate in gates
    ]
    for gate in gates:
        await gate.reached()
    behind = [asyncio.create_task(api("GET", "/agents")) for _ in range(MANY)]
    async with asyncio.timeout(PATIENCE_S / 2):
        for _ in range(MANY):
            assert (await other("GET", "/agents"))[0] == 200
    assert not any(each.done() for each in behind)
    for gate in gates:
        gate.open()
    await asyncio.gather(*reading)
    assert [status for status, _ in await asyncio.gather(*behind)] == [200] * MANY


@sqlite_only("organizations do not wait for each other")
async def test_writes_of_two_organizations_alternate(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    # One commit, however busy the machine is.
    monkeypatch.setattr("storage.database.sqlite.connection_thread.MAX_GROUP_S", 60.0)
    other = await api.as_another_organization()
    database, gate = api.services.database, Gate()
    writing = asyncio.create_task(database.write(lambda _: gate.wait()))
    await gate.reached()
    waiting = []
    async with asyncio.timeout(PATIENCE_S / 2):
        for count, (by, name) in enumerate([*[(api, "many")] * MANY, (other, "few")], start=1):
            waiting.append(asyncio.create_task(by("POST", "/agents", {"name": name})))
            while database.waiting_writes < count:  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(0.001)
    gate.open()
    await asyncio.gather(writing, *waiting)
    in_order = sa.select(tables.agents.c.name).order_by(sa.literal_column("rowid"))
    stored = await database.read(lambda conn: list(conn.execute(in_order).scalars()))
    assert stored == ["many", "few", *["many"] * (MANY - 1)]
