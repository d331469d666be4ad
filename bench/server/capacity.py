"""How many calls the whole server holds, what each costs, and how fast it takes new ones.

Server, callers and this process are three; CPU and memory are the server's alone. The ramp's callers speak 39 % of the
time (ITU-T P.59) and the agent answers: voice activity, turn taking, recording, database and log are on, the models are
scripted. New calls come from sipp; their callers listen to the agent on a quiet line for a second and hang up.
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
from bench.capture.departure_times import SentPackets
from bench.turn.server import NUMBER, PORTS
from bench.worker_process import Worker, resident_kb, thread_seconds

CALLS: Final = (50, 100, 200, 250)
RATES: Final = (10, 50, 100)
SECONDS: Final = 20.0
SETTLE_S: Final = 6.0
"""The callers begin to speak, and the agent to answer."""
WATCHED: Final = 25
"""Calls of which the wire is watched."""
HOLD_MS: Final = 1000
"""How long a call of the set-up rows is up."""
CPU_TARGET: Final = 0.5
"""Percent of a core per call, the whole session."""
SET_UP_TARGET_MS: Final = 20.0
SCENARIO: Final = Path(__file__).parent / "call_setup.sipp.xml"
OPEN_GATE: Final = {
    "sip": {"max_invites_per_second": 1000},
    "limits": {"max_calls": 600, "max_calls_per_organization": 600},
}
PUBLISHED: Final = (
    {"what": "siphon-ai (published): SIP, media, voice activity", "calls": 250, "cpu_percent_per_call": 0.54},
    {"what": "siphon-ai (published): memory", "calls": 200, "memory_kb_per_call": 430},
    {"what": "siphon-ai (published): set-up at 75 calls/s", "p95_ms": 0.5},
)


async def _start(server: Worker, folder: str) -> int:
    agent = {"system_prompt": "scripted", "first_speaker": "agent", "max_call_duration_seconds": 7200}
    answer = "Yes, I have written that down for you. Is there anything else?"
    started = await server.do("start", folder=folder, answer=answer, delays={}, agent=agent, settings=OPEN_GATE)
    return int(started["port"])


async def ramp(calls: int, seconds: float) -> dict[str, Any]:
    """So many calls at once, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server, Worker("bench.audio.pump_load") as load:
            port = await _start(server, folder)
            empty_kb = resident_kb(server.pid)
            await load.do("start", calls=calls, port=port, number=NUMBER)
            await asyncio.sleep(SETTLE_S)
            every = 2 * max(1, calls // WATCHED)  # each call has two ports
            await server.do("facts")
            before, began = thread_seconds(server.pid), asyncio.get_running_loop().time()
            with SentPackets(PORTS[0], PORTS[-1], every) as sent:
                await asyncio.sleep(seconds)
            after, took = thread_seconds(server.pid), asyncio.get_running_loop().time() - began
            facts = await server.do("facts")
            if facts["calls"] != calls:
                raise RuntimeError(f"{facts['calls']} of {calls} calls are left: {facts}")
            memory_kb = resident_kb(server.pid) - empty_kb
            await load.do("hang_up")
            over = await _all_over(server, calls)
    percent = 100 * (sum(after.values()) - sum(before.values())) / took
    wire = sent.deviations_ms()
    return {
        "what": "calls at once",
        "calls": calls,
        "cpu_percent": round(percent, 1),
        "cpu_percent_per_call": round(percent / calls, 3),
        "memory_kb_per_call": round(memory_kb / calls),
        "wire_deviation_ms": [round(float(value), 2) for value in (*np.percentile(wire, [50, 99]), wire.max())],
        "lost_percent": round(100 * over["lost"] / max(1, over["received"] + over["lost"]), 3),
    }


async def _all_over(server: Worker, calls: int) -> dict[str, Any]:
    """Wait until the end of every call is stored."""
    async with asyncio.timeout(30):
        while (facts := await server.do("facts"))["ended"] < calls:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.2)
    return facts


async def set_up(rate: int, seconds: float) -> dict[str, Any]:
    """New calls at that rate a second: from INVITE to 200."""
    calls = round(rate * seconds)
    with tempfile.TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server:
            port = await _start(server, folder)
            before = thread_seconds(server.pid)
            await _sipp(folder, port, rate, calls)
            over = await _all_over(server, calls)
            after = thread_seconds(server.pid)
            times = _times_ms(Path(folder))
    return {
        "what": f"new calls, {rate}/s",
        "calls": calls,
        "failed": calls - over["reasons"].get("customer_ended", 0),
        "p50_ms": round(float(np.percentile(times, 50)), 1),
        "p95_ms": round(float(np.percentile(times, 95)), 1),
        "max_ms": round(float(times.max()), 1),
        "cpu_ms_per_call": round(1000 * (sum(after.values()) - sum(before.values())) / calls, 1),
    }


def _write_quiet_line(path: Path) -> None:
    """10 s of what callers send who do not speak yet: the lowest steps of mu-law around zero."""
    steps = np.array([0xFF, 0x7F, 0xFE, 0x7E, 0xFD, 0x7D], np.uint8)
    path.write_bytes(np.random.default_rng(1).choice(steps, 80_000).tobytes())


async def _sipp(folder: str, port: int, rate: int, calls: int) -> None:
    await asyncio.to_thread(_write_quiet_line, Path(folder, "line.ul"))
    child = await asyncio.create_subprocess_exec(
        "sipp", f"127.0.0.1:{port}", "-sf", str(SCENARIO), "-s", NUMBER, "-m", str(calls), "-r", str(rate),
        "-i", "127.0.0.1", "-mi", "127.0.0.1", "-mp", "38000", "-d", str(HOLD_MS), "-nostdin",
        "-trace_rtt", "-rtt_freq", "1", "-trace_stat", "-stf", f"{folder}/stat.csv", "-timeout", "120",
        cwd=folder, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    if await asyncio.wait_for(child.wait(), 150) not in (0, 1):
        raise RuntimeError(f"sipp: exit {child.returncode}")


def _times_ms(folder: Path) -> np.ndarray[Any, np.dtype[np.float64]]:
    """sipp writes a line for each measured time, in ms."""
    lines = [line for path in folder.glob("*_rtt.csv") for line in path.read_text().splitlines()[1:]]
    return np.array([float(line.split(";")[1]) for line in lines])


async def run(
    calls: tuple[int, ...] = CALLS, rates: tuple[int, ...] = RATES, seconds: float = SECONDS
) -> list[dict[str, Any]]:
    """The rows of the table."""
    rows = [await ramp(number, seconds) for number in calls]
    rows += [await set_up(rate, seconds / 2) for rate in rates]
    return [*rows, *await encryption.run(), *PUBLISHED]


def misses(rows: list[dict[str, Any]]) -> list[str]:
    """Which rows miss which target, in words."""
    found = []
    for row in rows:
        if row["what"] == "calls at once" and row["cpu_percent_per_call"] > CPU_TARGET:
            found.append(f"{row['calls']} calls: {row['cpu_percent_per_call']} % of a core per call")
        if row.get("failed"):
            found.append(f"{row['what']}: {row['failed']} of {row['calls']} failed")
        if "failed" in row and row["p95_ms"] > SET_UP_TARGET_MS:
            found.append(f"{row['what']}: {row['p95_ms']} ms to the answer (p95), more than {SET_UP_TARGET_MS:g} ms")
    return found


def main() -> None:
    """Print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", nargs="*", type=int, default=CALLS)
    parser.add_argument("--rates", nargs="*", type=int, default=RATES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    for row in asyncio.run(run(tuple(options.calls), tuple(options.rates), options.seconds)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
