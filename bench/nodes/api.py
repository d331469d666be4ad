"""The server on PostgreSQL against the server on SQLite: API requests and call setup, one client, in turns; then three
nodes of one PostgreSQL database against one: CPU time of each call, and the time until a dead node is noticed.

Servers, PostgreSQL and the client share the machine. Both engines sync each commit to disk; the servers reach
PostgreSQL by a Unix socket. Each engine has 200 agents, 50 numbers and 10,000 calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
from sqlalchemy.engine import make_url

from bench.api.sample_data import agent
from bench.nodes.postgresql import PostgresqlLoad, durable_server
from bench.worker_process import Worker, machine, thread_seconds
from storage.database.database import Database
from storage.nodes import nodes
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.sip_phone import PhoneCall

ROUNDS: Final = 5
TIMES: Final = 40
"""Requests of each kind in a round."""
CALLS: Final = 10_000
AGENTS: Final = 200
NUMBERS: Final = 50
DIALLED: Final = "2000"
PHONE: Final = "127.0.0.40"
SETUPS: Final = 20
"""Calls in a round."""
AFTER_CALLS_S: Final = 4.0
"""Time for what a server does after calls, so that the other one is not measured meanwhile."""
NODE_CALLS: Final = 200
CALLS_PER_S: Final = 10
KILLS: Final = 3
REPORTED_S: Final = 3.0
"""Time in which PostgreSQL's sessions have reported their transactions."""
TRANSACTIONS_GOAL: Final = 12.0
"""The most transactions of a call."""
GOAL: Final = 2.0
"""The highest ratio of PostgreSQL to SQLite at p95."""
Row = dict[str, Any]
Work = Callable[[], Awaitable[Any]]


@dataclass(frozen=True)
class Started:
    """A running server: its process, and where its API and SIP are."""

    pid: int
    origin: str
    sip: str
    data: dict[str, Any]


class Client:
    """A client of a server with one connection."""

    def __init__(self, server: Started, key: str, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session
        self._headers = {"Authorization": f"Bearer {key}"}
        self._agents = 0

    async def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Returns the response's data. Raises `RuntimeError` unless it is 2xx."""
        url = f"{self.server.origin}/v1/{path}"
        async with self._session.request(method, url, json=body, headers=self._headers) as response:
            content = await response.json()
            if response.status // 100 != 2:
                raise RuntimeError(f"{method} {path}: {response.status} {content}")
            return content.get("data")

    async def fill(self, agents: int, numbers: int) -> dict[str, Work]:
        """Create agents and numbers; returns the kinds of requests."""
        ids = [(await self.send("POST", "agents", agent(number)))["id"] for number in range(agents)]
        quiet = {**agent(0), "postCallSummaryEnabled": False, "customerSilenceMs": 0}
        talker = (await self.send("POST", "agents", quiet))["id"]
        for number in range(numbers):
            body = {"number": f"+4940{number:06}", "provider": "sip", "agentId": ids[0], "sipMode": "ip_allowlist"}
            await self.send("POST", "phone-numbers", {**body, "sipIp": f"127.0.1.{1 + number}"})
        body = {"number": DIALLED, "provider": "sip", "agentId": talker, "sipMode": "ip_allowlist", "sipIp": PHONE}
        await self.send("POST", "phone-numbers", body)
        call = self.server.data["call_id"]
        return {
            "GET an agent": lambda: self.send("GET", f"agents/{ids[0]}"),
            "GET 50 of the agents": lambda: self.send("GET", "agents?limit=50"),
            "GET a call": lambda: self.send("GET", f"calls/{call}"),
            "GET 50 of the calls": lambda: self.send("GET", "calls?limit=50"),
            "GET 50 of the calls, from the 5,000th": lambda: self.send("GET", "calls?limit=50&offset=5000"),
            "GET the numbers": lambda: self.send("GET", "phone-numbers?limit=50"),
            "POST an agent": self._create,
            "PATCH an agent": lambda: self.send("PATCH", f"agents/{ids[1]}", {"name": f"Name {time.monotonic_ns()}"}),
        }

    async def _create(self) -> None:
        self._agents += 1
        await self.send("POST", "agents", agent(self._agents))


async def call_times_ms(target: str, packets: int = 1) -> tuple[float, float]:
    """Make a call that lasts for some packets; returns the times from INVITE to 200 and to the first RTP packet, ms."""
    async with RawPhone(target, PHONE) as phone:
        begun_s = time.perf_counter()
        async with PhoneCall(phone, DIALLED) as call:
            answered_s = time.perf_counter()
            await call.has_heard(1)
            heard_s = time.perf_counter()
            await call.has_heard(packets)
            await call.hang_up()
    return 1000 * (answered_s - begun_s), 1000 * (heard_s - begun_s)


@asynccontextmanager
async def _started(folder: Path, **arguments: Any) -> AsyncIterator[tuple[Started, Worker]]:
    await asyncio.to_thread(folder.mkdir)
    async with Worker("bench.api.server") as worker:
        data = await worker.request("start", folder=str(folder), **arguments)
        yield Started(worker.pid, data["origin"], f"127.0.0.1:{data['sip_port']}", data), worker


async def compare(rounds: int, times: int, calls: int, agents: int, numbers: int, setups: int) -> list[Row]:
    """The rows of one server on each engine."""
    took: dict[tuple[str, str], list[float]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-bench-")))
        postgresql = await durable_server(folder, stack)
        url = await asyncio.to_thread(postgresql.take_database)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        clients: dict[str, tuple[Client, dict[str, Work]]] = {}
        for engine, database in (("sqlite", {}), ("postgresql", {"database": {"url": url}})):
            server, _ = await stack.enter_async_context(_started(folder / f"server-{engine}", calls=calls, **database))
            client = Client(server, server.data["key"], session)
            clients[engine] = client, await client.fill(agents, numbers)
        # As autovacuum does within a minute: without it no count is read from an index alone.
        await asyncio.to_thread(postgresql.execute, "VACUUM ANALYZE", str(make_url(url).database))
        for number in range(rounds + 1):
            for engine, (client, works) in clients.items():
                found = await _round(client, works, times, setups)
                if number:  # the first round warms up
                    for what, values in found.items():
                        took[what, engine] += values
    names = list(dict.fromkeys(what for what, _ in took))
    return [_compared(what, took[what, "sqlite"], took[what, "postgresql"]) for what in names]


async def _round(client: Client, works: dict[str, Work], times: int, setups: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = defaultdict(list)
    for what, work in works.items():
        for _ in range(times):
            begun_s = time.perf_counter()
            await work()
            took[what].append(1000 * (time.perf_counter() - begun_s))
    for _ in range(setups):
        answered_ms, heard_ms = await call_times_ms(client.server.sip)
        took["call: INVITE to 200"].append(answered_ms)
        took["call: INVITE to the first RTP packet"].append(heard_ms)
    await asyncio.sleep(AFTER_CALLS_S)
    return took


def _compared(what: str, sqlite: Sequence[float], postgresql: Sequence[float]) -> Row:
    (a50, a95), (b50, b95) = np.percentile(sqlite, [50, 95]), np.percentile(postgresql, [50, 95])
    return {
        "what": what,
        "n": len(sqlite),
        "sqlite_ms": [round(float(a50), 2), round(float(a95), 2)],
        "postgresql_ms": [round(float(b50), 2), round(float(b95), 2)],
        "ratio": [round(float(b50 / a50), 2), round(float(b95 / a95), 2)],
    }


async def measure_nodes(count: int, calls: int, per_s: float) -> list[Row]:
    """The CPU time of short calls on that many nodes in turns, less that of as much time without calls."""
    async with AsyncExitStack() as stack:
        servers, load, _ = await _nodes(stack, count)
        pids = [server.pid for server in servers]
        for server in servers:
            await call_times_ms(server.sip)  # the first call loads what later ones use
        seconds = calls / per_s
        measured_s = seconds + REPORTED_S
        idle = await _used(pids, load, asyncio.sleep(seconds))
        answered: list[float] = []

        async def call(number: int) -> None:
            await asyncio.sleep(number / per_s)
            answered.append((await call_times_ms(servers[number % count].sip, packets=25))[0])

        async def all_calls() -> None:
            await asyncio.gather(*map(call, range(calls)))

        busy = await _used(pids, load, all_calls())
    p50, p95 = np.percentile(answered, [50, 95])
    name = "one node" if count == 1 else f"{count} nodes"
    return [
        {
            "what": f"{name}: {calls} calls of 0.5 s, {per_s:g} a second",
            "servers_cpu_ms": round(1000 * (busy.servers_s - idle.servers_s) / calls, 1),
            "postgresql_cpu_ms": round(1000 * (busy.postgresql_s - idle.postgresql_s) / calls, 1),
            "transactions": round((busy.transactions - idle.transactions) / calls, 1),
            "idle_percent": [round(100 * each / measured_s, 1) for each in (idle.servers_s, idle.postgresql_s)],
            "idle_transactions_per_s": round(idle.transactions / measured_s, 1),
            "postgresql_ms": [round(float(p50), 1), round(float(p95), 1)],
        }
    ]


@dataclass(frozen=True)
class Used:
    """CPU seconds of the servers and of PostgreSQL, and the transactions of all, reads too."""

    servers_s: float
    postgresql_s: float
    transactions: int


async def _used(pids: Sequence[int], load: PostgresqlLoad, work: Awaitable[Any]) -> Used:
    """What the work has used."""

    async def used() -> Used:
        servers_s, postgresql_s = sum(sum(thread_seconds(pid).values()) for pid in pids), load.cpu_s()
        await asyncio.sleep(REPORTED_S)
        return Used(servers_s, postgresql_s, await asyncio.to_thread(load.transactions))

    before = await used()
    await work
    after = await used()
    return Used(
        after.servers_s - before.servers_s,
        after.postgresql_s - before.postgresql_s,
        after.transactions - before.transactions,
    )


async def _nodes(stack: AsyncExitStack, count: int) -> tuple[list[Started], PostgresqlLoad, str]:
    """Nodes of one database with the dialled number; the first one has made it."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-bench-")))
    postgresql = await durable_server(folder, stack)
    url = await asyncio.to_thread(postgresql.take_database)
    servers: list[Started] = []
    for number in range(count):
        settings = {
            "database": {"url": url},
            "secret_key_file": str(folder / "secret.key"),
            "node": {"name": f"node{number}"},
            "is_first": number == 0,
        }
        server, _ = await stack.enter_async_context(_started(folder / f"node{number}", **settings))
        servers.append(server)
    async with aiohttp.ClientSession() as session:
        await Client(servers[0], servers[0].data["key"], session).fill(1, 0)
    await asyncio.sleep(2)  # the other nodes read the number
    return servers, PostgresqlLoad(postgresql), url


async def measure_death(kills: int) -> list[Row]:
    """The time from `kill -9` until the node counts as down."""
    took = []
    for _ in range(kills):
        async with AsyncExitStack() as stack:
            servers, _, url = await _nodes(stack, 2)
            database = Database(url)
            await database.open()
            stack.push_async_callback(database.close)
            os.kill(servers[0].pid, signal.SIGKILL)
            killed_s = time.perf_counter()
            while not any(each.is_down for each in await database.read(nodes.all_of)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            took.append(round(time.perf_counter() - killed_s, 1))
    return [{"what": "`kill -9` of a node until it is down for the others, s", "n": kills, "seconds": sorted(took)}]


async def run(
    rounds: int = ROUNDS,
    times: int = TIMES,
    calls: int = CALLS,
    agents: int = AGENTS,
    setups: int = SETUPS,
    node_calls: int = NODE_CALLS,
    kills: int = KILLS,
) -> list[Row]:
    """The rows of the table."""
    rows = await compare(rounds, times, calls, agents, min(NUMBERS, agents), setups)
    for count in (1, 3):
        rows += await measure_nodes(count, node_calls, CALLS_PER_S)
    return [*rows, *await measure_death(kills)]


async def run_quick() -> list[Row]:
    """The same with small parameters."""
    return await run(rounds=1, times=3, calls=20, agents=5, setups=2, node_calls=6, kills=1)


def missed_goals(rows: Sequence[Row]) -> list[str]:
    """The comparisons in which PostgreSQL takes more than `GOAL` times as long at p95, and calls of too many
    transactions."""
    compared = [row for row in rows if "ratio" in row]
    slow = [f"{row['what']}: {row['ratio'][1]} times SQLite at p95" for row in compared if row["ratio"][1] > GOAL]
    counted = [row for row in rows if row.get("transactions", 0) > TRANSACTIONS_GOAL]
    return slow + [f"{row['what']}: {row['transactions']} transactions a call" for row in counted]


def main() -> None:
    """Prints the machine and the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--times", type=int, default=TIMES, help="requests of each kind in a round")
    parser.add_argument("--only", choices=("engines", "nodes", "death"))
    options = parser.parse_args()
    print(json.dumps(machine()), flush=True)
    for row in asyncio.run(_selected(options.only, options.rounds, options.times)):
        print(json.dumps(row), flush=True)


async def _selected(only: str | None, rounds: int, times: int) -> list[Row]:
    match only:
        case "engines":
            return await compare(rounds, times, CALLS, AGENTS, NUMBERS, SETUPS)
        case "nodes":
            return [row for count in (1, 3) for row in await measure_nodes(count, NODE_CALLS, CALLS_PER_S)]
        case "death":
            return await measure_death(KILLS)
        case _:
            return await run(rounds, times)


if __name__ == "__main__":
    main()
