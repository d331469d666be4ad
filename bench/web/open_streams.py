"""Effect of open dashboards on calls: the RTP packets of calls in conversation with and without streams of events.

    python -m bench.web.open_streams [--calls N] [--streams N] [--seconds N]

The server is the whole one as `trunkline serve` runs it, with scripted models; the callers are a separate process, and
the streams are read by this one, on the same machine. Runs with and without the streams alternate.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp
import numpy as np

from bench.api.noisy_neighbour import NUMBER, Tenants, tenants
from bench.api.server import PORTS
from bench.capture.rtp_send_times import RtpSendTimes
from bench.worker_process import Worker, thread_seconds

REPEATS: Final = 2
SETTLE_S: Final = 5.0


@dataclass
class _Result:
    """Deviations of packet gaps from 20 ms, the server's CPU, and the events that all streams have received."""

    deviations_ms: list[float] = field(default_factory=list)
    cpu_percent: list[float] = field(default_factory=list)
    events_per_s: list[float] = field(default_factory=list)


def main() -> None:
    """Print the figures as a Markdown table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    asyncio.run(_run(options.calls, options.streams, options.seconds))


async def _run(calls: int, streams: int, seconds: float) -> None:
    results = {0: _Result(), streams: _Result()}
    with TemporaryDirectory() as folder:
        async with tenants(folder, 0) as both, Worker("bench.audio.pump_load") as callers:
            await callers.request("start", calls=calls, port=both.sip_port, number=NUMBER)
            await asyncio.sleep(SETTLE_S)
            for _ in range(REPEATS):
                for count, result in results.items():
                    await _measure(both, count, seconds, result)
    print(
        "| calls | streams | events/s of all streams | deviation p50, p99, p99.9, max, ms | server's CPU, % of a core |"
    )
    print("|---|---|---|---|---|")
    for count, result in results.items():
        deviations = np.array(result.deviations_ms)
        figures = ", ".join(f"{each:.2f}" for each in (*np.percentile(deviations, [50, 99, 99.9]), deviations.max()))
        events, cpu = np.mean(result.events_per_s), np.mean(result.cpu_percent)
        print(f"| {calls} | {count} | {events:.0f} | {figures} | {cpu:.0f} |")


async def _measure(both: Tenants, streams: int, seconds: float, result: _Result) -> None:
    async with _followed(both, streams) as received:
        before, counted = _cpu_s(both.pid), received[0]
        with RtpSendTimes(PORTS[0], PORTS[-1], 2) as send_times:
            await asyncio.sleep(seconds)
            result.deviations_ms += list(send_times.deviations_ms())
        result.cpu_percent.append(100 * (_cpu_s(both.pid) - before) / seconds)
        result.events_per_s.append((received[0] - counted) / seconds)


def _cpu_s(pid: int) -> float:
    return sum(thread_seconds(pid).values())


@asynccontextmanager
async def _followed(both: Tenants, streams: int) -> AsyncIterator[list[int]]:
    """Reads so many streams of the organization that has the calls; yields a list whose item counts the events."""
    received = [0]
    headers = {"Authorization": f"Bearer {both.small.key}"}

    async def read(session: aiohttp.ClientSession) -> None:
        async with session.get(f"{both.small.origin}/v1/events") as response:
            async for chunk in response.content.iter_any():
                received[0] += chunk.count(b"\nevent: ")

    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        reading = [asyncio.create_task(read(session)) for _ in range(streams)]
        try:
            await asyncio.sleep(1.0)
            yield received
        finally:
            for each in reading:
                each.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


if __name__ == "__main__":
    main()
