"""CPU and memory of a G.711 call in the audio pump, and the regularity of its packets, with and without a spinning
Python thread.

Three processes on one machine: the measured server, the callers, which have a pump of their own, and this one, which
captures packets. CPU is that of the server process alone, without the spinning thread; the kernel's work for a packet
is charged to its sender, as usual.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any, Final

import numpy as np

from bench.audio.pump_server import PORTS
from bench.capture.rtp_send_times import RtpSendTimes
from bench.worker_process import Worker, resident_kb, thread_seconds

CALLS: Final = (50, 100, 200, 250)
SECONDS: Final = 20.0
SETTLE_S: Final = 4.0
"""Time in which jitter buffers fill and the callers begin to speak."""
CAPTURED_CALLS: Final = 25
"""Calls whose packets are captured."""
SPINNING: Final = "spinning"
CPU_GOAL: Final = 0.25
"""Percent of a core per call, with voice activity detection and recording."""
DEVIATION_GOAL_MS: Final = 3.0


async def measure(calls: int, seconds: float, with_engine: bool, settle_s: float = SETTLE_S) -> list[dict[str, Any]]:
    """Returns two rows for one number of calls: without and with a spinning thread."""
    async with Worker("bench.audio.pump_server") as server, Worker("bench.audio.pump_load") as load:
        port = (await server.request("start", calls=calls, with_engine=with_engine))["port"]
        empty_kb = resident_kb(server.pid)
        await load.request("start", calls=calls, port=port)
        await asyncio.sleep(settle_s)
        rows = []
        for spinning in (False, True):
            await server.request("spin", on=spinning)
            row = await _measure_once(server, calls, seconds)
            rows.append({"calls": calls, "engine": with_engine, "spinning": spinning, **row})
        await server.request("spin", on=False)
        rows[0]["memory_kb_per_call"] = round((resident_kb(server.pid) - empty_kb) / calls)
        return rows


async def _measure_once(server: Worker, calls: int, seconds: float) -> dict[str, Any]:
    await asyncio.sleep(1.0)
    every = 2 * max(1, calls // CAPTURED_CALLS)  # each call has two ports
    before, cpu_before = await server.request("stats", reset=True), thread_seconds(server.pid)
    began = asyncio.get_running_loop().time()
    with RtpSendTimes(PORTS[0], PORTS[-1], every) as send_times:
        await asyncio.sleep(seconds)
        after, cpu_after = await server.request("stats", reset=False), thread_seconds(server.pid)
        elapsed_s = asyncio.get_running_loop().time() - began
    if after["calls"] != calls:
        raise RuntimeError(f"only {after['calls']} of {calls} calls are active")
    wire_deviations = send_times.deviations_ms()
    percent = {
        name: round(100 * (cpu_after[name] - cpu_before.get(name, 0.0)) / elapsed_s, 2)
        for name in cpu_after
        if name != SPINNING
    }
    return {
        "cpu_percent": round(sum(percent.values()), 1),
        "cpu_percent_per_call": round(sum(percent.values()) / calls, 3),
        "cpu_by_thread": {name: share for name, share in percent.items() if share},
        "lateness_ms": [round(value, 2) for value in after["lateness_ms"]],
        "deviation_ms": [round(value, 2) for value in after["deviation_ms"]],
        "captured_calls": send_times.streams,
        "wire_deviation_ms": [
            round(float(value), 2) for value in (*np.percentile(wire_deviations, [50, 99]), wire_deviations.max())
        ],
        "skipped_ticks": after["skipped_ticks"] - before["skipped_ticks"],
        "engine_ms_per_tick": _engine_ms(before, after),
        "realtime": after["realtime"],
    }


def _engine_ms(before: dict[str, Any], after: dict[str, Any]) -> float | None:
    ticks = after["engine_ticks"] - before["engine_ticks"]
    return round(1000 * (after["engine_seconds"] - before["engine_seconds"]) / ticks, 2) if ticks else None


async def run(
    calls: tuple[int, ...] = CALLS, seconds: float = SECONDS, with_engine: bool = True, settle_s: float = SETTLE_S
) -> list[dict[str, Any]]:
    """The rows of the table."""
    return [row for number in calls for row in await measure(number, seconds, with_engine, settle_s)]


def missed_goals(rows: list[dict[str, Any]]) -> list[str]:
    """The goals that rows miss, in words."""
    missed = []
    for row in rows:
        name = f"{row['calls']} calls" + (", spinning thread" if row["spinning"] else "")
        if not row["spinning"] and row["cpu_percent_per_call"] > CPU_GOAL:
            missed.append(f"{name}: {row['cpu_percent_per_call']} % of a core per call, more than {CPU_GOAL} %")
        if row["wire_deviation_ms"][1] > DEVIATION_GOAL_MS:
            p99 = row["wire_deviation_ms"][1]
            missed.append(f"{name}: packets deviate by {p99} ms (p99), more than {DEVIATION_GOAL_MS} ms")
    return missed


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", nargs="*", type=int, default=CALLS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument(
        "--no-engine", action="store_true", help="the pump alone, without voice activity detection and recording"
    )
    options = parser.parse_args()
    for row in asyncio.run(run(tuple(options.calls), options.seconds, not options.no_engine)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
