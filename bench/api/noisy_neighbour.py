"""Effect of one tenant's API load on another tenant: the first requests pages of the largest possible agents over many
connections, which read nothing of the responses or all of them; the second requests a list of one agent, has calls and
receives new ones.

The server is the whole one as `trunkline serve` runs it, with scripted models; the load, the callers and the second
tenant's client are separate processes on the same machine. Runs with and without the load alternate.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp
import numpy as np
from numpy.typing import NDArray

from api.schemas.bounds import MAX_DESCRIPTION, MAX_EXTRACTIONS, MAX_NAME, MAX_TRANSFER_TARGETS
from bench.api.route_throughput import send
from bench.api.server import PORTS
from bench.api.wrk import Target
from bench.capture.rtp_send_times import TICK_MS, RtpSendTimes
from bench.worker_process import Worker

AGENTS: Final = 100
CONNECTIONS: Final = 20
LIST_PATH: Final = "/v1/agents?limit=100"
SECONDS: Final = 12.0
REPEATS: Final = 2
CALLS: Final = 4
NUMBER: Final = "2000"
SETTLE_S: Final = 4.0
PAUSE_S: Final = 0.005
"""Between two requests of the second tenant."""
MARGIN_MS: Final = 50.0
"""Largest allowed increase of the p99 of its list requests under load."""
LATE_MS: Final = 2 * TICK_MS
"""A packet is late if the gap to the packet before it is longer."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Tenants:
    """A server with two tenants: `large` has the largest agents, `small` has one agent and its phone number."""

    pid: int
    large: Target
    small: Target
    sip_port: int


def largest_agent(number: int) -> dict[str, Any]:
    """The body of an agent in which every list is full and every text has its maximum length, with two bytes per
    character."""
    text, name = "é" * MAX_DESCRIPTION, "é" * (MAX_NAME - 3)
    return {
        "name": f"Largest {number}",
        "systemPrompt": "é" * 32_000,
        "transferTargets": [
            {"name": f"{each:03}{name}", "description": text, "number": "+15550173", "mode": "cold"}
            for each in range(MAX_TRANSFER_TARGETS)
        ],
        "postCallExtractionSchema": [
            {"name": f"{each:03}{name}", "description": text, "type": "string"} for each in range(MAX_EXTRACTIONS)
        ],
    }


@asynccontextmanager
async def tenants(folder: str, agents: int = AGENTS) -> AsyncIterator[Tenants]:
    """Runs the server with both tenants until the block ends."""
    async with Worker("bench.api.server") as worker:
        started = await worker.request("start", folder=folder)
        large = Target(started["origin"], started["key"])
        small = Target(started["origin"], (await worker.request("add_tenant"))["key"])
        async with _session(large) as session:
            for number in range(agents):
                # UTF-8, because with escapes the body would be three times as large and exceed the limit.
                body = json.dumps(largest_agent(number), ensure_ascii=False).encode()
                async with session.post(f"{large.origin}/v1/agents", data=body) as response:
                    if response.status != 201:
                        raise RuntimeError(f"the largest agent was rejected: {(await response.text())[:500]}")
        one = (await send(small, "POST", "/v1/agents", {"name": "One", "maxCallDurationSeconds": 3600}))["data"]
        trunk = {"number": NUMBER, "provider": "sip", "sipMode": "ip_allowlist", "sipIp": "127.0.0.1"}
        await send(small, "POST", "/v1/phone-numbers", {**trunk, "agentId": one["id"]})
        yield Tenants(worker.pid, large, small, started["sip_port"])


def _session(target: Target) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers={"Authorization": f"Bearer {target.key}"})


async def list_latencies(target: Target, seconds: float) -> NDArray[np.float64]:
    """Repeats the second tenant's request for its list of one agent. Returns the latency of each, ms. Raises
    `RuntimeError` if a response is not that list."""
    latencies_ms: list[float] = []
    async with _session(target) as session:
        until_s = time.perf_counter() + seconds
        while time.perf_counter() < until_s:
            began = time.perf_counter()
            async with session.get(target.origin + LIST_PATH) as response:
                content = await response.json()
            latencies_ms.append((time.perf_counter() - began) * 1000)
            if response.status != 200 or len(content["data"]) != 1:
                raise RuntimeError(f"the list of one agent: status {response.status}")
            await asyncio.sleep(PAUSE_S)
    return np.array(latencies_ms)


@dataclass
class _Measurement:
    """The results of one run."""

    lists_ms: NDArray[np.float64]
    gaps_ms: NDArray[np.float64]
    answered_ms: float
    peak_mb: float


async def _measure(both: Tenants, seconds: float) -> _Measurement:
    """Measures the second tenant's list requests and RTP packets for `seconds`; in between it receives a new call."""
    await asyncio.to_thread(_reset_peak, both.pid)
    async with Worker("bench.audio.pump_load") as caller:
        with RtpSendTimes(PORTS[0], PORTS[-1], 2) as send_times:
            listing = asyncio.create_task(list_latencies(both.small, seconds))
            await asyncio.sleep(seconds / 2)
            called = await caller.request("start", calls=1, port=both.sip_port, number=NUMBER)
            lists_ms = await listing
    return _Measurement(lists_ms, send_times.gaps_ms(), called["slowest_ms"], _peak_mb(both.pid))


def _reset_peak(pid: int) -> None:
    """Resets the kernel's peak of the process's resident memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _row(what: str, measurements: list[_Measurement]) -> Row:
    lists_ms = np.concatenate([each.lists_ms for each in measurements])
    gaps = np.concatenate([each.gaps_ms for each in measurements])
    return {
        "what": what,
        "lists": len(lists_ms),
        "list_ms": [round(float(each), 1) for each in (*np.percentile(lists_ms, [50, 99]), lists_ms.max())],
        "gap_ms": [round(float(each), 1) for each in (*np.percentile(gaps, [50, 99]), gaps.max())],
        "packets": len(gaps),
        "late": int((gaps > LATE_MS).sum()),
        "answered_ms": round(max(each.answered_ms for each in measurements), 0),
        "peak_mb": round(max(each.peak_mb for each in measurements)),
    }


async def run(
    seconds: float = SECONDS,
    repeats: int = REPEATS,
    agents: int = AGENTS,
    connections: int = CONNECTIONS,
    settle_s: float = SETTLE_S,
) -> list[Row]:
    """Returns three rows: no load, load whose responses are not read, load whose responses are read."""
    kinds: dict[str, bool | None] = {
        "no load": None,
        f"{connections} connections that do not read": False,
        f"{connections} connections that read": True,
    }
    measurements: dict[str, list[_Measurement]] = {what: [] for what in kinds}
    ended: dict[str, int] = dict.fromkeys(kinds, 0)
    with TemporaryDirectory() as folder:
        async with (
            tenants(folder, agents) as both,
            Worker("bench.audio.pump_load") as callers,
            Worker("bench.api.noisy_neighbour_load") as load,
        ):
            await callers.request("start", calls=CALLS, port=both.sip_port, number=NUMBER)
            await asyncio.sleep(settle_s)
            await list_latencies(both.small, 1.0)  # warm-up
            for _ in range(repeats):
                for what, reads in kinds.items():
                    if reads is not None:
                        request = {"origin": both.large.origin, "key": both.large.key, "path": LIST_PATH}
                        await load.request("start", **request, connections=connections, reads=reads)
                    measurements[what].append(await _measure(both, seconds))
                    if reads is not None:
                        ended[what] += (await load.request("stop"))["ended"]
    return [{**_row(what, measurements[what]), "ended": ended[what]} for what in kinds]


def missed_goals(rows: list[Row]) -> list[str]:
    """The goals that rows under load miss, in words."""
    alone, *loaded = rows
    missed = []
    for row in loaded:
        more = row["list_ms"][1] - alone["list_ms"][1]
        if more > MARGIN_MS:
            missed.append(f"{row['what']}: p99 of a list is {more:.1f} ms higher, more than {MARGIN_MS} ms")
        if row["late"] > alone["late"]:
            missed.append(f"{row['what']}: {row['late']} packets were late, {alone['late']} without load")
    return missed
