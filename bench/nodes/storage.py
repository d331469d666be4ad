"""The storage functions on SQLite and on PostgreSQL, on this machine: reads, creates, and the transactions of a call,
one client and many. Both sync each commit to disk; PostgreSQL is reached by a Unix socket. Rounds of the two engines
alternate."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from bench.nodes.postgresql import durable_server
from bench.worker_process import machine
from config.clock import utc_now
from storage.accounts import organizations
from storage.agents import agents
from storage.calls import calls
from storage.database.database import Database
from storage.tables.agent_fields import AgentFields

ROUNDS: Final = 5
TIMES: Final = 200
CLIENTS: Final = 20
FIELDS: Final = AgentFields(name="agent", system_prompt="You answer the phone of a harbour. " * 20)
TIMELINE: Final = [{"response_gap_ms": 300}] * 5
Row = dict[str, Any]
Work = Callable[[], Awaitable[Any]]


class Workload:
    """What clients of one organization do."""

    def __init__(self, database: Database, organization_id: str, agent_id: str) -> None:
        self._database = database
        self._owner = organization_id
        self._agent = agent_id

    def works(self) -> dict[str, tuple[Work, int]]:
        """The kinds of work, each with the number of clients that do it at once."""
        return {
            "read an agent": (self._read, 1),
            f"read an agent, {CLIENTS} clients": (self._read, CLIENTS),
            "list 20 agents": (self._list, 1),
            "create an agent": (self._create, 1),
            "store an inbound call": (self._store_call, 1),
            "a call: store, answer, end": (self._call, 1),
            f"a call: store, answer, end, {CLIENTS} clients": (self._call, CLIENTS),
        }

    async def _read(self) -> None:
        await self._database.read(partial(agents.get, organization_id=self._owner, agent_id=self._agent))

    async def _list(self) -> None:
        await self._database.read(partial(agents.page, organization_id=self._owner, limit=20, offset=0))

    async def _create(self) -> None:
        await self._write(lambda conn: agents.create(conn, self._owner, FIELDS))

    async def _store_call(self) -> str:
        stored = await self._write(
            lambda conn: calls.create_inbound(
                conn, organization_id=self._owner, agent_id=self._agent, phone_number_id="number", provider="sip",
                call_sid="call", customer_number="+4930100",
            )
        )  # fmt: skip
        return str(stored.id)

    async def _call(self) -> None:
        call_id = await self._store_call()
        await self._write(lambda conn: calls.mark_answered(conn, call_id, utc_now()))
        await self._write(
            lambda conn: calls.finish(
                conn, call_id, status="completed", ended_reason="customer_ended", ended_at=utc_now(),
                recording=True, timeline=TIMELINE,
            )
        )  # fmt: skip

    async def _write(self, work: Callable[[sa.Connection], Any]) -> Any:
        return await self._database.write(work, owner=self._owner)


async def _opened(url: str, stack: AsyncExitStack) -> Workload:
    database = Database(url, "node")
    await database.open()
    stack.push_async_callback(database.close)
    owner = (await database.write(lambda conn: organizations.create(conn, "office"))).id
    agent = await database.write(lambda conn: agents.create(conn, owner, FIELDS), owner=owner)
    return Workload(database, owner, agent.id)


async def _times_ms(work: Work, clients: int, times: int) -> list[float]:
    """The duration of each time, ms."""
    took: list[float] = []

    async def client() -> None:
        for _ in range(max(1, times // clients)):
            begun_s = time.perf_counter()
            await work()
            took.append(1000 * (time.perf_counter() - begun_s))

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return took


async def run(rounds: int = ROUNDS, times: int = TIMES) -> list[Row]:
    """The rows of the table: p50 and p95 of each engine, ms, and the ratios of PostgreSQL to SQLite."""
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        async with AsyncExitStack() as stack:
            server = await durable_server(Path(folder), stack)
            url = await asyncio.to_thread(server.take_database)
            engines = {
                "sqlite": await _opened(f"sqlite+aiosqlite:///{folder}/trunkline.db", stack),
                "postgresql": await _opened(url, stack),
            }
            took: dict[tuple[str, str], list[float]] = defaultdict(list)
            for _ in range(rounds):
                for engine, workload in engines.items():
                    for what, (work, clients) in workload.works().items():
                        took[what, engine] += await _times_ms(work, clients, times)
            return [_row(what, took[what, "sqlite"], took[what, "postgresql"]) for what in engines["sqlite"].works()]


def _row(what: str, sqlite: list[float], postgresql: list[float]) -> Row:
    a50, a95 = np.percentile(sqlite, [50, 95])
    b50, b95 = np.percentile(postgresql, [50, 95])
    return {
        "what": what,
        "sqlite_p50_ms": round(float(a50), 2),
        "sqlite_p95_ms": round(float(a95), 2),
        "postgresql_p50_ms": round(float(b50), 2),
        "postgresql_p95_ms": round(float(b95), 2),
        "ratio_p50": round(float(b50 / a50), 2),
        "ratio_p95": round(float(b95 / a95), 2),
    }


def main() -> None:
    """Prints the machine and the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--times", type=int, default=TIMES, help="times that each work is done in a round")
    options = parser.parse_args()
    print(json.dumps(machine()), flush=True)
    for row in asyncio.run(run(options.rounds, options.times)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
