"""Web calls: the intervals of their audio frames as clients receive them, and the server's CPU.

    python -m bench.web.web_calls [--calls N ...] [--seconds N]

The server is the whole one as `trunkline serve` runs it, with scripted models; the clients are tasks of this process,
on the same machine: their own delays are in the intervals. They send silence, a frame for each received one.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp
import numpy as np

from bench.api.noisy_neighbour import Tenants, tenants
from bench.api.route_throughput import send
from bench.worker_process import thread_seconds

FRAME: Final = bytes(640)
"""20 ms of silence."""
SETTLE_S: Final = 5.0


def main() -> None:
    """Print the figures as a Markdown table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, nargs="+", default=[1, 10, 20])
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    asyncio.run(_run(options.calls, options.seconds))


async def _run(counts: list[int], seconds: float) -> None:
    print("| web calls | frame interval p50, p99, p99.9, max, ms | frames a call and s | server's CPU, % of a core |")
    print("|---|---|---|---|")
    with TemporaryDirectory() as folder:
        async with tenants(folder, 0) as both:
            for calls in counts:
                async with _clients(both, calls) as arrivals:
                    await asyncio.sleep(SETTLE_S)
                    for each in arrivals:
                        each.clear()
                    cpu = await _cpu_percent(both, seconds)
                    intervals_ms = 1000 * np.concatenate([np.diff(each) for each in arrivals])
                figures = (*np.percentile(intervals_ms, [50, 99, 99.9]), intervals_ms.max())
                shown = ", ".join(f"{each:.1f}" for each in figures)
                rate = len(intervals_ms) / calls / seconds
                print(f"| {calls} | {shown} | {rate:.1f} | {cpu:.1f} |")


async def _cpu_percent(both: Tenants, seconds: float) -> float:
    """The server's CPU over the next seconds, % of a core."""
    before = sum(thread_seconds(both.pid).values())
    await asyncio.sleep(seconds)
    return 100 * (sum(thread_seconds(both.pid).values()) - before) / seconds


@asynccontextmanager
async def _clients(both: Tenants, calls: int) -> AsyncIterator[list[list[float]]]:
    """Hold so many web calls; yields the arrival times of the frames of each, s."""
    (agent,) = (await send(both.small, "GET", "/v1/agents"))["data"]
    arrivals: list[list[float]] = [[] for _ in range(calls)]

    async def talk(socket: aiohttp.ClientWebSocketResponse, arrived: list[float]) -> None:
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                arrived.append(time.perf_counter())
                await socket.send_bytes(FRAME)

    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
        talking = []
        for arrived in arrivals:
            created = await send(both.small, "POST", "/v1/calls/test", {"agentId": agent["id"]})
            socket = await stack.enter_async_context(session.ws_connect(created["data"]["websocketUrl"]))
            talking.append(asyncio.create_task(talk(socket, arrived)))
        yield arrivals
        if any(each.done() for each in talking):
            raise RuntimeError("a web call has ended")
        for each in talking:
            each.cancel()
        await asyncio.gather(*talking, return_exceptions=True)


if __name__ == "__main__":
    main()
