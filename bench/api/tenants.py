"""What one tenant's load costs another: the first asks for pages of the largest agents there can be over many
connections that take nothing of the answers, or all of them; the second asks for a list of one item, holds calls and is
called.

The server is the whole one as `trunkline serve` runs it, with scripted models; the load, the callers and the second
tenant's client are processes of their own on the same machine. With and without the load in turns, in the same run.
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
from bench.api.api import ask
from bench.api.load import Target
from bench.api.server import PORTS
from bench.capture.departure_times import TICK_MS, SentPackets
from bench.worker_process import Worker

AGENTS: Final = 100
CONNECTIONS: Final = 20
LIST: Final = "/v1/agents?limit=100"
SECONDS: Final = 12.0
REPEATS: Final = 2
CALLS: Final = 4
NUMBER: Final = "2000"
SETTLE_S: Final = 4.0
PAUSE_S: Final = 0.005
"""Between two requests of the second tenant."""
MARGIN_MS: Final = 50.0
"""How much higher its p99 may be under load."""
LATE_MS: Final = 2 * TICK_MS
"""A packet that comes so long after the one before it is late."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Tenants:
    """A server with both: the first has the large agents, the second one agent, and a number that it answers."""

    pid: int
    large: Target
    small: Target
    sip_port: int


def largest_agent(number: int) -> dict[str, Any]:
    """Every list full, every text as long as it may be; two bytes for each character."""
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
    """The server with its data, until the block ends."""
    async with Worker("bench.api.server") as worker:
        facts = await worker.do("start", folder=folder)
        large = Target(facts["origin"], facts["key"])
        small = Target(facts["origin"], (await worker.do("add_tenant"))["key"])
        async with _session(large) as session:
            for number in range(agents):
                # As UTF-8: in escapes it would be three times as large, more than a body may be.
                body = json.dumps(largest_agent(number), ensure_ascii=False).encode()
                async with session.post(f"{large.origin}/v1/agents", data=body) as response:
                    if response.status != 201:
                        raise RuntimeError(f"the largest agent is refused: {(await response.text())[:500]}")
        one = (await ask(small, "POST", "/v1/agents", {"name": "One", "maxCallDurationSeconds": 3600}))["data"]
        trunk = {"number": NUMBER, "provider": "sip", "sipMode": "ip_allowlist", "sipIp": "127.0.0.1"}
        await ask(small, "POST", "/v1/phone-numbers", {**trunk, "agentId": one["id"]})
        yield Tenants(worker.pid, large, small, facts["sip_port"])


def _session(target: Target) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers={"Authorization": f"Bearer {target.key}"})


async def lists(target: Target, seconds: float) -> NDArray[np.float64]:
    """The second tenant asks for its one-item list again and again: how long each took, ms. Raises `RuntimeError` when
    an answer is anything else."""
    took: list[float] = []
    async with _session(target) as session:
        until_s = time.perf_counter() + seconds
        while time.perf_counter() < until_s:
            began = time.perf_counter()
            async with session.get(target.origin + LIST) as response:
                answer = await response.json()
            took.append((time.perf_counter() - began) * 1000)
            if response.status != 200 or len(answer["data"]) != 1:
                raise RuntimeError(f"the list of one item is answered {response.status}")
            await asyncio.sleep(PAUSE_S)
    return np.array(took)


@dataclass
class _Measurement:
    """One spell of measuring."""

    lists_ms: NDArray[np.float64]
    gaps_ms: NDArray[np.float64]
    answered_ms: float
    peak_mb: float


async def _watch(both: Tenants, seconds: float) -> _Measurement:
    """The second tenant's lists and its calls' packets for some seconds; in between somebody calls it."""
    await asyncio.to_thread(_forget_peak, both.pid)
    async with Worker("bench.audio.pump_load") as caller:
        with SentPackets(PORTS[0], PORTS[-1], 2) as sent:
            asking = asyncio.create_task(lists(both.small, seconds))
            await asyncio.sleep(seconds / 2)
            called = await caller.do("start", calls=1, port=both.sip_port, number=NUMBER)
            took = await asking
    return _Measurement(took, sent.gaps_ms(), called["slowest_ms"], _peak_mb(both.pid))


def _forget_peak(pid: int) -> None:
    """The highest memory is that from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _row(what: str, measurements: list[_Measurement]) -> Row:
    took = np.concatenate([each.lists_ms for each in measurements])
    gaps = np.concatenate([each.gaps_ms for each in measurements])
    return {
        "what": what,
        "lists": len(took),
        "list_ms": [round(float(each), 1) for each in (*np.percentile(took, [50, 99]), took.max())],
        "gap_ms": [round(float(each), 1) for each in (*np.percentile(gaps, [50, 99]), gaps.max())],
        "packets": len(gaps),
        "late": int((gaps > LATE_MS).sum()),
        "answered_ms": round(max(each.answered_ms for each in measurements), 0),
        "peak_mb": round(max(each.peak_mb for each in measurements)),
    }


async def run(
    seconds: float = SECONDS, repeats: int = REPEATS, agents: int = AGENTS, connections: int = CONNECTIONS
) -> list[Row]:
    """A row without load, one under load that is not read, one under load that is."""
    kinds: dict[str, bool | None] = {
        "no load": None,
        f"{connections} connections that do not read": True,
        f"{connections} connections that read": False,
    }
    measurements: dict[str, list[_Measurement]] = {what: [] for what in kinds}
    ended: dict[str, int] = dict.fromkeys(kinds, 0)
    with TemporaryDirectory() as folder:
        async with (
            tenants(folder, agents) as both,
            Worker("bench.audio.pump_load") as callers,
            Worker("bench.api.tenants_load") as load,
        ):
            await callers.do("start", calls=CALLS, port=both.sip_port, number=NUMBER)
            await asyncio.sleep(SETTLE_S)
            await lists(both.small, 1.0)
            for _ in range(repeats):
                for what, deaf in kinds.items():
                    if deaf is not None:
                        asked = {"origin": both.large.origin, "key": both.large.key, "path": LIST}
                        await load.do("start", **asked, connections=connections, deaf=deaf)
                    measurements[what].append(await _watch(both, seconds))
                    if deaf is not None:
                        ended[what] += (await load.do("stop"))["ended"]
    return [{**_row(what, measurements[what]), "ended": ended[what]} for what in kinds]


def misses(rows: list[Row]) -> list[str]:
    """Which load costs more than it may, in words."""
    alone, *loaded = rows
    found = []
    for row in loaded:
        more = row["list_ms"][1] - alone["list_ms"][1]
        if more > MARGIN_MS:
            found.append(f"{row['what']}: p99 of a list is {more:.1f} ms higher, more than {MARGIN_MS} ms")
        if row["late"] > alone["late"]:
            found.append(f"{row['what']}: {row['late']} packets were late, {alone['late']} without load")
    return found
