"""API throughput: requests per second and latency of three routes, alternating with the same routes in FastAPI and
SQLAlchemy, and during calls; and the effect of that load on the regularity of the calls' RTP packets.

All processes share the machine: the server, wrk, and either FastAPI (idle in the server's turn) or the callers. The
databases are in the system's temporary folder; only on a disk do the commits take as long as in production.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp
import numpy as np
from numpy.typing import NDArray

from bench.api.sample_data import AGENTS, agent
from bench.api.server import PORTS
from bench.api.wrk import LoadRequest, Target, WrkResult, median_result, run_wrk, wrk_path
from bench.capture.rtp_send_times import RtpSendTimes
from bench.worker_process import Worker

CONNECTIONS: Final = (1, 20)
SECONDS: Final = 3
REPEATS: Final = 3
WARM_UP_S: Final = 1
CALLS: Final = 100
NUMBER: Final = "2000"
SETTLE_S: Final = 6.0
"""Time in which greetings end, jitter buffers fill and the callers begin to speak."""
CAPTURED_CALLS: Final = 25
"""Calls whose packets are captured."""
FASTAPI_PYTHON: Final = Path(__file__).parents[2] / "build/peer/bin/python"
READS_GOAL: Final = 1500
"""Requests per second without calls."""
P99_GOAL_MS: Final = 15.0
"""During calls."""
DEVIATION_MARGIN_MS: Final = 1.0
"""Largest allowed increase of the p99 of the packets' deviations from 20 ms under load."""
VARYING_FIELDS: Final = frozenset({"id", "createdAt", "updatedAt", "startedAt", "endedAt"})
"""Fields that differ between two servers with the same data."""

Row = dict[str, Any]


@dataclass(frozen=True)
class TrunklineServer:
    """The running Trunkline server with its data: `call` and `agents` as the API returns them."""

    target: Target
    sip_port: int
    call: dict[str, Any]
    agents: list[dict[str, Any]]


@asynccontextmanager
async def trunkline_server(folder: str) -> AsyncIterator[TrunklineServer]:
    """Runs the Trunkline server with sample data until the block ends."""
    async with Worker("bench.api.server") as worker:
        started = await worker.request("start", folder=folder)
        target = Target(started["origin"], started["key"])
        call = (await send(target, "GET", f"/v1/calls/{started['call_id']}"))["data"]
        yield TrunklineServer(target, started["sip_port"], call, await create_agents(target))


@asynccontextmanager
async def fastapi_server(folder: str, trunkline: TrunklineServer) -> AsyncIterator[Target]:
    """Runs the FastAPI server with the same data until the block ends. Raises `RuntimeError` if its responses
    differ."""
    async with Worker("bench.api.fastapi_server", str(FASTAPI_PYTHON)) as worker:
        path = str(Path(folder, "fastapi.db"))
        started = await worker.request("start", path=path, key=trunkline.target.key, call=trunkline.call)
        target = Target(f"http://127.0.0.1:{started['port']}", trunkline.target.key)
        check_same([trunkline.call], [(await send(target, "GET", f"/v1/calls/{trunkline.call['id']}"))["data"]])
        check_same(trunkline.agents, await create_agents(target))
        for each in (trunkline.target, target):
            page = await send(each, "GET", "/v1/agents?limit=50")
            if len(page["data"]) != 50 or page["pagination"] != {"total": AGENTS, "limit": 50, "offset": 0}:
                raise RuntimeError(f"{each.origin} lists {len(page['data'])} agents, {page['pagination']}")
        yield target


async def send(target: Target, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Sends one request. Returns the body. Raises `RuntimeError` if the status is not that of success."""
    headers = {"Authorization": f"Bearer {target.key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, target.origin + path, json=body, allow_redirects=False) as response,
    ):
        if response.status != (201 if method == "POST" else 200):
            raise RuntimeError(f"{method} {path}: status {response.status}: {await response.text()}")
        content: dict[str, Any] = await response.json()
        return content


async def create_agents(target: Target) -> list[dict[str, Any]]:
    """Creates the agents. Returns them as in the responses."""
    return [(await send(target, "POST", "/v1/agents", agent(number)))["data"] for number in range(AGENTS)]


def check_same(expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> None:
    """Raises `RuntimeError` if resources have different fields, or different values except ids and times."""
    for one, other in zip(expected, actual, strict=True):
        different = one.keys() ^ other.keys() | {
            name for name in one.keys() & other.keys() - VARYING_FIELDS if one[name] != other[name]
        }
        if different:
            raise RuntimeError(f"FastAPI's response differs: {sorted(different)}")


def requests(call_id: str) -> dict[str, LoadRequest]:
    """The requests to the three routes. The one that writes is last, because it makes the list of agents longer."""
    head, tail = json.dumps({**agent(0), "name": "Load #"}).split("#")
    return {
        "GET /v1/agents?limit=50": LoadRequest("GET", "/v1/agents?limit=50"),
        "GET /v1/calls/{id}": LoadRequest("GET", f"/v1/calls/{call_id}"),
        "POST /v1/agents": LoadRequest("POST", "/v1/agents", (head, tail)),
    }


async def measure_without_calls(seconds: int, repeats: int, connection_counts: Sequence[int]) -> list[Row]:
    """Measures Trunkline and FastAPI in turns, with no other load on the machine."""
    rows = []
    with TemporaryDirectory() as folder:
        async with trunkline_server(folder) as server, fastapi_server(folder, server) as other:
            for name, request in requests(server.call["id"]).items():
                for connections in connection_counts:
                    figures = await _in_turns(server.target, other, request, connections, seconds, repeats)
                    rows.append({"route": name, "connections": connections, "calls": 0, **figures})
    return rows


async def _in_turns(
    trunkline: Target, fastapi: Target, request: LoadRequest, connections: int, seconds: int, repeats: int
) -> dict[str, Any]:
    results: dict[Target, list[WrkResult]] = {trunkline: [], fastapi: []}
    for target in results:
        await run_wrk(target, request, connections, WARM_UP_S)
    for _ in range(repeats):
        for target, target_results in results.items():
            target_results.append(await run_wrk(target, request, connections, seconds))
    fastapi_result = {f"fastapi_{key}": value for key, value in median_result(results[fastapi]).items()}
    return {**median_result(results[trunkline]), **fastapi_result}


async def measure_during_calls(
    seconds: int, repeats: int, connection_counts: Sequence[int], calls: int, settle_s: float = SETTLE_S
) -> list[Row]:
    """Measures Trunkline during calls; before each run, packets are captured for the same time without requests."""
    rows = []
    with TemporaryDirectory() as folder:
        async with trunkline_server(folder) as server, Worker("bench.audio.pump_load") as load:
            trunk = {"number": NUMBER, "provider": "sip", "sipMode": "ip_allowlist", "sipIp": "127.0.0.1"}
            await send(server.target, "POST", "/v1/phone-numbers", {**trunk, "agentId": server.agents[0]["id"]})
            await load.request("start", calls=calls, port=server.sip_port, number=NUMBER)
            await asyncio.sleep(settle_s)
            for name, request in requests(server.call["id"]).items():
                for connections in connection_counts:
                    figures = await _measure_load(server.target, request, connections, seconds, repeats, calls)
                    rows.append({"route": name, "connections": connections, "calls": calls, **figures})
            live = await send(server.target, "GET", "/v1/calls?status=in_progress&limit=1")
            if live["pagination"]["total"] != calls:
                raise RuntimeError(f"only {live['pagination']['total']} of {calls} calls are active")
    return rows


async def _measure_load(
    target: Target, request: LoadRequest, connections: int, seconds: int, repeats: int, calls: int
) -> dict[str, Any]:
    await run_wrk(target, request, connections, WARM_UP_S)
    every = 2 * max(1, calls // CAPTURED_CALLS)  # each call has two ports
    results, idle, loaded = [], [], []
    for _ in range(repeats):
        with RtpSendTimes(PORTS[0], PORTS[-1], every) as send_times:
            await asyncio.sleep(seconds)
        idle.append(send_times.deviations_ms())
        with RtpSendTimes(PORTS[0], PORTS[-1], every) as send_times:
            results.append(await run_wrk(target, request, connections, seconds))
        loaded.append(send_times.deviations_ms())
    return {
        **median_result(results),
        "captured_calls": send_times.streams,
        "deviation_idle_ms": _summary(np.concatenate(idle)),
        "deviation_loaded_ms": _summary(np.concatenate(loaded)),
    }


def _summary(deviations: NDArray[np.float64]) -> list[float]:
    """p50, p99 and maximum. Raises `RuntimeError` if no packet was captured."""
    if not len(deviations):
        raise RuntimeError("no packets were captured")
    return [round(float(value), 2) for value in (*np.percentile(deviations, [50, 99]), deviations.max())]


async def run(seconds: int = SECONDS, repeats: int = REPEATS, calls: int = CALLS) -> list[Row]:
    """The rows of the table. Ends the program with a message if wrk or FastAPI is not installed."""
    require_programs()
    return [
        *await measure_without_calls(seconds, repeats, CONNECTIONS),
        *await measure_during_calls(seconds, repeats, CONNECTIONS, calls),
    ]


async def run_quick() -> list[Row]:
    """The rows of the table with the smallest parameters, which prove that everything works."""
    require_programs()
    return [*await measure_without_calls(1, 1, (2,)), *await measure_during_calls(1, 1, (2,), 4, settle_s=1.0)]


def require_programs() -> None:
    """Ends the program with a message if wrk or FastAPI is not installed."""
    wrk_path()
    if not FASTAPI_PYTHON.exists():
        raise SystemExit(
            "python -m bench: build/peer is missing; `scripts/venv.sh peer` creates it (`make bench` runs it)"
        )


def missed_goals(rows: list[Row]) -> list[str]:
    """The goals that rows miss, in words."""
    missed = []
    for row in rows:
        name = f"{row['route']}, {row['connections']} connections, {row['calls']} calls"
        missed += [f"{name}: {goal}" for goal in (_missed_during_calls if row["calls"] else _missed_without_calls)(row)]
        if row["not_2xx"]:
            missed.append(f"{name}: {row['not_2xx']} responses were not 2xx or missing")
    return missed


def _missed_without_calls(row: Row) -> list[str]:
    missed = []
    if row["route"].startswith("GET") and row["requests_per_s"] < READS_GOAL:
        missed.append(f"{row['requests_per_s']} requests/s, less than {READS_GOAL}")
    if row["requests_per_s"] <= row["fastapi_requests_per_s"]:
        missed.append(f"{row['requests_per_s']} requests/s, FastAPI {row['fastapi_requests_per_s']}")
    if row["fastapi_not_2xx"]:
        missed.append(f"{row['fastapi_not_2xx']} responses of FastAPI were not 2xx or missing: no fair comparison")
    return missed


def _missed_during_calls(row: Row) -> list[str]:
    missed = []
    if row["p99_ms"] > P99_GOAL_MS:
        missed.append(f"p99 {row['p99_ms']} ms, more than {P99_GOAL_MS} ms")
    idle, loaded = row["deviation_idle_ms"][1], row["deviation_loaded_ms"][1]
    if loaded > idle + DEVIATION_MARGIN_MS:
        missed.append(f"packets deviate by {loaded} ms (p99), {idle} ms without requests")
    return missed


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--calls", type=int, default=CALLS)
    options = parser.parse_args()
    for row in asyncio.run(run(options.seconds, options.repeats, options.calls)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
