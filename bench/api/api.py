"""How fast the API is: three routes alone, in turns with the same routes in FastAPI and SQLAlchemy, and while calls are
up; and whether the calls' packets leave as evenly under that load.

All processes share the machine: the server, wrk, and either the peer (idle in the server's turn) or the callers. The
databases lie in the system's temporary folder: only on a disk do the commits take the time that they take in use.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp
import numpy as np
from numpy.typing import NDArray

from bench.api.data import AGENTS, agent
from bench.api.load import LoadRequest, Sample, Target, fire, middle, wrk
from bench.api.server import PORTS
from bench.capture.departure_times import SentPackets
from bench.worker_process import Worker

CONNECTIONS: Final = (1, 20)
SECONDS: Final = 3
REPEATS: Final = 3
WARM_UP_S: Final = 1
CALLS: Final = 100
NUMBER: Final = "2000"
SETTLE_S: Final = 6.0
"""Greetings are spoken, jitter buffers fill, the callers begin to speak."""
WATCHED: Final = 25
"""Calls of which the packets are watched."""
PEER_PYTHON: Final = Path(__file__).parents[2] / "build/peer/bin/python"
READS_TARGET: Final = 1500
"""Requests per second, alone."""
P99_TARGET_MS: Final = 15.0
"""While calls are up."""
DEVIATION_MARGIN_MS: Final = 1.0
"""How much further the packets' p99 may be from 20 ms under load than without."""
VARYING: Final = frozenset({"id", "createdAt", "updatedAt", "startedAt", "endedAt"})
"""What two servers that do the same answer differently."""

Row = dict[str, Any]


@dataclass(frozen=True)
class TrunklineServer:
    """Our server, filled; `call` as it answers it."""

    target: Target
    sip_port: int
    call: dict[str, Any]
    agents: list[dict[str, Any]]


@asynccontextmanager
async def trunkline_server(folder: str) -> AsyncIterator[TrunklineServer]:
    """Our server with its data, until the block ends."""
    async with Worker("bench.api.server") as worker:
        facts = await worker.do("start", folder=folder)
        target = Target(facts["origin"], facts["key"])
        call = (await ask(target, "GET", f"/v1/calls/{facts['call_id']}"))["data"]
        yield TrunklineServer(target, facts["sip_port"], call, await make_agents(target))


@asynccontextmanager
async def peer_server(folder: str, like: TrunklineServer) -> AsyncIterator[Target]:
    """The peer with the same data, until the block ends. Raises `RuntimeError` when it does not answer the same."""
    async with Worker("bench.api.fastapi_peer", str(PEER_PYTHON)) as worker:
        path = str(Path(folder, "peer.db"))
        facts = await worker.do("start", path=path, key=like.target.key, call=like.call)
        target = Target(f"http://127.0.0.1:{facts['port']}", like.target.key)
        must_match([like.call], [(await ask(target, "GET", f"/v1/calls/{like.call['id']}"))["data"]])
        must_match(like.agents, await make_agents(target))
        for each in (like.target, target):
            page = await ask(each, "GET", "/v1/agents?limit=50")
            if len(page["data"]) != 50 or page["pagination"] != {"total": AGENTS, "limit": 50, "offset": 0}:
                raise RuntimeError(f"{each.origin} lists {len(page['data'])} agents, {page['pagination']}")
        yield target


async def ask(target: Target, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request. Raises `RuntimeError` unless the answer is the route's success."""
    headers = {"Authorization": f"Bearer {target.key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, target.origin + path, json=body, allow_redirects=False) as response,
    ):
        if response.status != (201 if method == "POST" else 200):
            raise RuntimeError(f"{method} {path} answered {response.status}: {await response.text()}")
        answer: dict[str, Any] = await response.json()
        return answer


async def make_agents(target: Target) -> list[dict[str, Any]]:
    """The agents as the server answered them."""
    return [(await ask(target, "POST", "/v1/agents", agent(number)))["data"] for number in range(AGENTS)]


def must_match(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> None:
    """The same fields everywhere, and the same values but for ids and times. Raises `RuntimeError`."""
    for one, other in zip(left, right, strict=True):
        different = one.keys() ^ other.keys() | {
            name for name in one.keys() & other.keys() - VARYING if one[name] != other[name]
        }
        if different:
            raise RuntimeError(f"the peer answers otherwise: {sorted(different)}")


def requests(call_id: str) -> dict[str, LoadRequest]:
    """The three routes. What writes comes last: lists of more and more agents would not be the same any more."""
    head, tail = json.dumps({**agent(0), "name": "Load #"}).split("#")
    return {
        "GET /v1/agents?limit=50": LoadRequest("GET", "/v1/agents?limit=50"),
        "GET /v1/calls/{id}": LoadRequest("GET", f"/v1/calls/{call_id}"),
        "POST /v1/agents": LoadRequest("POST", "/v1/agents", (head, tail)),
    }


async def alone(seconds: int, repeats: int) -> list[Row]:
    """Ours and the peer in turns, nothing else on the machine."""
    rows = []
    with TemporaryDirectory() as folder:
        async with trunkline_server(folder) as server, peer_server(folder, server) as other:
            for name, request in requests(server.call["id"]).items():
                for connections in CONNECTIONS:
                    figures = await _in_turns(server.target, other, request, connections, seconds, repeats)
                    rows.append({"route": name, "connections": connections, "calls": 0, **figures})
    return rows


async def _in_turns(
    own: Target, other: Target, request: LoadRequest, connections: int, seconds: int, repeats: int
) -> dict[str, Any]:
    taken: dict[Target, list[Sample]] = {own: [], other: []}
    for target in taken:
        await fire(target, request, connections, WARM_UP_S)
    for _ in range(repeats):
        for target, samples in taken.items():
            samples.append(await fire(target, request, connections, seconds))
    return {**middle(taken[own]), **{f"peer_{key}": value for key, value in middle(taken[other]).items()}}


async def beside_calls(seconds: int, repeats: int, calls: int) -> list[Row]:
    """Ours while calls talk; before each run the same time without requests, for the packets' sake."""
    rows = []
    with TemporaryDirectory() as folder:
        async with trunkline_server(folder) as server, Worker("bench.audio.pump_load") as load:
            trunk = {"number": NUMBER, "provider": "sip", "sipMode": "ip_allowlist", "sipIp": "127.0.0.1"}
            await ask(server.target, "POST", "/v1/phone-numbers", {**trunk, "agentId": server.agents[0]["id"]})
            await load.do("start", calls=calls, port=server.sip_port, number=NUMBER)
            await asyncio.sleep(SETTLE_S)
            for name, request in requests(server.call["id"]).items():
                for connections in CONNECTIONS:
                    figures = await _loaded(server.target, request, connections, seconds, repeats, calls)
                    rows.append({"route": name, "connections": connections, "calls": calls, **figures})
            live = await ask(server.target, "GET", "/v1/calls?status=in_progress&limit=1")
            if live["pagination"]["total"] != calls:
                raise RuntimeError(f"{live['pagination']['total']} of {calls} calls are left")
    return rows


async def _loaded(
    target: Target, request: LoadRequest, connections: int, seconds: int, repeats: int, calls: int
) -> dict[str, Any]:
    await fire(target, request, connections, WARM_UP_S)
    every = 2 * max(1, calls // WATCHED)  # each call has two ports
    samples, idle, loaded = [], [], []
    for _ in range(repeats):
        with SentPackets(PORTS[0], PORTS[-1], every) as sent:
            await asyncio.sleep(seconds)
        idle.append(sent.deviations_ms())
        with SentPackets(PORTS[0], PORTS[-1], every) as sent:
            samples.append(await fire(target, request, connections, seconds))
        loaded.append(sent.deviations_ms())
    return {
        **middle(samples),
        "watched_calls": sent.streams,
        "deviation_idle_ms": _summary(np.concatenate(idle)),
        "deviation_loaded_ms": _summary(np.concatenate(loaded)),
    }


def _summary(deviations: NDArray[np.float64]) -> list[float]:
    """p50, p99, max. Raises `RuntimeError` when no packet was seen."""
    if not len(deviations):
        raise RuntimeError("no packets were seen on the wire")
    return [round(float(value), 2) for value in (*np.percentile(deviations, [50, 99]), deviations.max())]


async def run(seconds: int = SECONDS, repeats: int = REPEATS, calls: int = CALLS) -> list[Row]:
    """The rows of the table. Ends the program when something that it needs is not installed."""
    wrk()
    if not PEER_PYTHON.exists():
        raise SystemExit("python -m bench: build/peer is missing; `scripts/venv.sh peer` makes it (`make bench` does)")
    return [*await alone(seconds, repeats), *await beside_calls(seconds, repeats, calls)]


def misses(rows: list[Row]) -> list[str]:
    """Which rows miss which target, in words."""
    found = []
    for row in rows:
        name = f"{row['route']}, {row['connections']} connections, {row['calls']} calls"
        found += [f"{name}: {miss}" for miss in (_misses_beside_calls if row["calls"] else _misses_alone)(row)]
        if row["not_2xx"]:
            found.append(f"{name}: {row['not_2xx']} answers were not 2xx or did not come")
    return found


def _misses_alone(row: Row) -> list[str]:
    found = []
    if row["route"].startswith("GET") and row["requests_per_s"] < READS_TARGET:
        found.append(f"{row['requests_per_s']} requests/s, less than {READS_TARGET}")
    if row["requests_per_s"] <= row["peer_requests_per_s"]:
        found.append(f"{row['requests_per_s']} requests/s, the peer {row['peer_requests_per_s']}")
    if row["peer_not_2xx"]:
        found.append(f"{row['peer_not_2xx']} answers of the peer were not 2xx or did not come: no fair comparison")
    return found


def _misses_beside_calls(row: Row) -> list[str]:
    found = []
    if row["p99_ms"] > P99_TARGET_MS:
        found.append(f"p99 {row['p99_ms']} ms, more than {P99_TARGET_MS} ms")
    idle, loaded = row["deviation_idle_ms"][1], row["deviation_loaded_ms"][1]
    if loaded > idle + DEVIATION_MARGIN_MS:
        found.append(f"packets deviate by {loaded} ms (p99), {idle} ms without requests")
    return found


def main() -> None:
    """Print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--calls", type=int, default=CALLS)
    options = parser.parse_args()
    for row in asyncio.run(run(options.seconds, options.repeats, options.calls)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
