"""Capacity of the server: CPU, memory and packet timing with concurrent calls, and the setup time and CPU of new calls.

Server, callers and this one are separate processes; CPU and memory are those of the server alone. In the concurrent
calls the callers speak 39 % of the time (ITU-T P.59) and the agent answers: voice activity detection, turn taking,
recording, database and log are on, the models are scripted. New calls come from sipp; their callers listen to the agent
on a quiet line for a second and hang up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench import encryption
from bench.capture.rtp_send_times import RtpSendTimes
from bench.turn.server import NUMBER, PORTS
from bench.worker_process import Worker, resident_kb, thread_seconds

CALLS: Final = (50, 100, 200, 250)
RATES: Final = (10, 50, 100)
SECONDS: Final = 20.0
SETTLE_S: Final = 6.0
"""Time in which the callers begin to speak and the agent to answer."""
CAPTURED_CALLS: Final = 25
"""Calls whose packets are captured."""
CALL_MS: Final = 1000
"""Duration of a call of the setup rows."""
CPU_GOAL: Final = 0.5
"""Percent of a core per call of a whole session."""
SETUP_GOAL_MS: Final = 20.0
SCENARIO: Final = Path(__file__).parent / "call_setup.sipp.xml"
RAISED_LIMITS: Final = {
    "sip": {"max_invites_per_second": 1000},
    "limits": {"max_calls": 600, "max_calls_per_organization": 600},
}
PUBLISHED: Final = (
    {"what": "siphon-ai (published): SIP, media, voice activity", "calls": 250, "cpu_percent_per_call": 0.54},
    {"what": "siphon-ai (published): memory", "calls": 200, "memory_kb_per_call": 430},
    {"what": "siphon-ai (published): call setup at 75 calls/s", "p95_ms": 0.5},
)


async def _start(server: Worker, folder: str) -> int:
    agent = {"system_prompt": "scripted", "first_speaker": "agent", "max_call_duration_seconds": 7200}
    answer = "Yes, I have written that down for you. Is there anything else?"
    started = await server.request(
        "start", folder=folder, answer=answer, delays={}, agent=agent, settings=RAISED_LIMITS
    )
    return int(started["port"])


async def measure_concurrent_calls(calls: int, seconds: float, settle_s: float = SETTLE_S) -> dict[str, Any]:
    """Measures `calls` concurrent calls for `seconds`. Returns a row."""
    with tempfile.TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server, Worker("bench.audio.pump_load") as load:
            port = await _start(server, folder)
            empty_kb = resident_kb(server.pid)
            await load.request("start", calls=calls, port=port, number=NUMBER)
            await asyncio.sleep(settle_s)
            every = 2 * max(1, calls // CAPTURED_CALLS)  # each call has two ports
            await server.request("status")
            before, began = thread_seconds(server.pid), asyncio.get_running_loop().time()
            with RtpSendTimes(PORTS[0], PORTS[-1], every) as send_times:
                await asyncio.sleep(seconds)
            after, elapsed_s = thread_seconds(server.pid), asyncio.get_running_loop().time() - began
            status = await server.request("status")
            if status["calls"] != calls:
                raise RuntimeError(f"only {status['calls']} of {calls} calls are active: {status}")
            memory_kb = resident_kb(server.pid) - empty_kb
            await load.request("hang_up")
            ended = await _wait_until_ended(server, calls)
    percent = 100 * (sum(after.values()) - sum(before.values())) / elapsed_s
    wire_deviations = send_times.deviations_ms()
    return {
        "what": "concurrent calls",
        "calls": calls,
        "cpu_percent": round(percent, 1),
        "cpu_percent_per_call": round(percent / calls, 3),
        "memory_kb_per_call": round(memory_kb / calls),
        "wire_deviation_ms": [
            round(float(value), 2) for value in (*np.percentile(wire_deviations, [50, 99]), wire_deviations.max())
        ],
        "lost_percent": round(100 * ended["lost"] / max(1, ended["received"] + ended["lost"]), 3),
    }


async def _wait_until_ended(server: Worker, calls: int) -> dict[str, Any]:
    """Waits until the end of every call is stored. Returns the server's status."""
    async with asyncio.timeout(30):
        while (status := await server.request("status"))["ended"] < calls:  # noqa: ASYNC110 - the worker sends no events
            await asyncio.sleep(0.2)
    return status


async def measure_call_setup(rate: int, seconds: float) -> dict[str, Any]:
    """Measures the time from INVITE to 200 with `rate` new calls per second. Returns a row."""
    calls = round(rate * seconds)
    with tempfile.TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server:
            port = await _start(server, folder)
            before = thread_seconds(server.pid)
            await _run_sipp(folder, port, rate, calls)
            ended = await _wait_until_ended(server, calls)
            after = thread_seconds(server.pid)
            times = _setup_times_ms(Path(folder))
    return {
        "what": f"new calls, {rate}/s",
        "calls": calls,
        "failed": calls - ended["reasons"].get("customer_ended", 0),
        "p50_ms": round(float(np.percentile(times, 50)), 1),
        "p95_ms": round(float(np.percentile(times, 95)), 1),
        "max_ms": round(float(times.max()), 1),
        "cpu_ms_per_call": round(1000 * (sum(after.values()) - sum(before.values())) / calls, 1),
    }


def _write_quiet_line(path: Path) -> None:
    """Writes 10 s of line noise: the lowest steps of mu-law around zero."""
    steps = np.array([0xFF, 0x7F, 0xFE, 0x7E, 0xFD, 0x7D], np.uint8)
    path.write_bytes(np.random.default_rng(1).choice(steps, 80_000).tobytes())


async def _run_sipp(folder: str, port: int, rate: int, calls: int) -> None:
    await asyncio.to_thread(_write_quiet_line, Path(folder, "line.ul"))
    child = await asyncio.create_subprocess_exec(
        "sipp", f"127.0.0.1:{port}", "-sf", str(SCENARIO), "-s", NUMBER, "-m", str(calls), "-r", str(rate),
        "-i", "127.0.0.1", "-mi", "127.0.0.1", "-mp", "38000", "-d", str(CALL_MS), "-nostdin",
        "-trace_rtt", "-rtt_freq", "1", "-trace_stat", "-stf", f"{folder}/stat.csv", "-timeout", "120",
        cwd=folder, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    if await asyncio.wait_for(child.wait(), 150) not in (0, 1):
        raise RuntimeError(f"sipp: exit {child.returncode}")


def _setup_times_ms(folder: Path) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The times from INVITE to 200 that sipp has written, one line each, ms."""
    lines = [line for path in folder.glob("*_rtt.csv") for line in path.read_text().splitlines()[1:]]
    return np.array([float(line.split(";")[1]) for line in lines])


async def run(
    calls: tuple[int, ...] = CALLS, rates: tuple[int, ...] = RATES, seconds: float = SECONDS
) -> list[dict[str, Any]]:
    """The rows of the table."""
    rows = [await measure_concurrent_calls(number, seconds) for number in calls]
    rows += [await measure_call_setup(rate, seconds / 2) for rate in rates]
    return [*rows, *await encryption.run(), *PUBLISHED]


async def run_quick() -> list[dict[str, Any]]:
    """The rows of the table with the smallest parameters, which prove that everything works."""
    return [
        await measure_concurrent_calls(4, 1.0, settle_s=2.0),
        await measure_call_setup(10, 1.0),
        *await encryption.run(2, 0.5, settle_s=0.5),
        *PUBLISHED,
    ]


def missed_goals(rows: list[dict[str, Any]]) -> list[str]:
    """The goals that rows miss, in words."""
    missed = []
    for row in rows:
        if row["what"] == "concurrent calls" and row["cpu_percent_per_call"] > CPU_GOAL:
            missed.append(f"{row['calls']} calls: {row['cpu_percent_per_call']} % of a core per call")
        if row.get("failed"):
            missed.append(f"{row['what']}: {row['failed']} of {row['calls']} failed")
        if "failed" in row and row["p95_ms"] > SETUP_GOAL_MS:
            missed.append(f"{row['what']}: {row['p95_ms']} ms to the answer (p95), more than {SETUP_GOAL_MS:g} ms")
    return missed


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", nargs="*", type=int, default=CALLS)
    parser.add_argument("--rates", nargs="*", type=int, default=RATES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    for row in asyncio.run(run(tuple(options.calls), tuple(options.rates), options.seconds)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
