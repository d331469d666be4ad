"""Connected transfers: the CPU of bridged pairs with recording, the delay and loss of their audio, and the time from
the acceptance by the target until both hear each other.

Server and phones are separate processes; CPU is that of the server's process alone. Each caller talks with the agent,
is transferred after a briefing (`warm_briefing`), and the called phone accepts by key 1. Then both phones send markers,
one in each packet, at times that are spread evenly over the server's ticks of 20 ms. The delay of a marker is that from
the sending of its packet until the kernel has received the packet that carries it at the other phone, corrected for the
marker's position in both. It includes the loopback interface, the server's jitter buffer and the wait for its next
tick, and neither the time in which a phone fills a packet nor the jitter buffer of the receiving phone.

Asterisk, where it is installed, connects the same phones in the same run by `Dial`, with `MixMonitor`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np

from bench.turn.server import NUMBER
from bench.worker_process import Worker, thread_seconds
from tests.peers.asterisk import Asterisk

PAIRS: Final = 50
SECONDS: Final = 20.0
SETTLE_S: Final = 4.0
"""Wait before each measurement, in which recordings and jitter buffers settle."""
INTERVAL_S: Final = 0.1
"""Between two transfers, and between two acceptances."""
CPU_GOAL: Final = 0.3
"""Percent of a core per pair."""
DELAY_GOAL_MS: Final = 25.0
HEARING_GOAL_MS: Final = 100.0
FIRST_TARGET: Final = 5500
"""The number of the first called phone; the last two digits are those of the phone."""
ASTERISK_EXTENSIONS: Final = 1000
ASTERISK_FILES: Final = {
    "pjsip.conf": """
[udp]
type=transport
protocol=udp
bind=127.0.0.1:{port}
[phones]
type=endpoint
context=phones
disallow=all
allow=ulaw
direct_media=no
aors=phones
[phones]
type=aor
contact=sip:127.0.0.1:{phones}
[phones]
type=identify
endpoint=phones
match=127.0.0.1
""",
    "extensions.conf": """
[phones]
exten => _1XXX,1,MixMonitor({folder}/${EXTEN}.wav)
 same => n,Dial(PJSIP/phones/sip:55${EXTEN:2}@127.0.0.1:{phones})
""",
}


async def measure_trunkline(
    pairs: int, seconds: float, settle_s: float = SETTLE_S, *, stay_on_call: bool = False
) -> dict[str, Any]:
    """Connects and measures `pairs`, with `stay_on_call` transcribed by their agents. Returns a row."""
    with tempfile.TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server, Worker("bench.transfer.phones") as phones:
            called_port = (await phones.request("listen", pairs=pairs))["port"]
            started = await server.request("start", **_server_arguments(folder, pairs, called_port, stay_on_call))
            await server.request("name_threads")
            await asyncio.sleep(settle_s)
            idle = await _cpu(server.pid, lambda: asyncio.sleep(seconds / 2))
            await phones.request("call", port=started["port"], number=NUMBER)
            await asyncio.sleep(settle_s)
            await server.request("transfer", mode="warm_briefing", interval_s=INTERVAL_S)
            await _until_answered(phones, pairs)
            await asyncio.sleep(settle_s)
            hearing = (await phones.request("accept", interval_s=INTERVAL_S))["hearing_ms"]
            await asyncio.sleep(3 * settle_s)  # jitter buffers shrink slowly
            row = await _measure(server.pid, phones, pairs, seconds, idle)
            await phones.request("hang_up")
            await _until_ended(server, 2 * pairs)
    what = "Trunkline, two stereo recordings of each pair" + (", stayOnCall" if stay_on_call else "")
    return {"what": what, **row, **_hearing(hearing)}


async def measure_idle(seconds: float, settle_s: float = SETTLE_S) -> dict[str, float]:
    """Returns the CPU of a server without calls by thread, % of a core."""
    with tempfile.TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server:
            await server.request("start", **_server_arguments(folder, 0, 0, False))
            await server.request("name_threads")
            await asyncio.sleep(settle_s)
            by_thread = await _cpu(server.pid, lambda: asyncio.sleep(seconds))
    return {name: round(share, 2) for name, share in by_thread.items()}


def _server_arguments(folder: str, pairs: int, called_port: int, stay_on_call: bool) -> dict[str, Any]:
    targets = [
        {"name": str(at), "description": "", "number": str(FIRST_TARGET + at), "mode": "warm_briefing"}
        for at in range(pairs)
    ]
    return {
        "folder": folder,
        "answer": "One moment, please.",
        "delays": {},
        "agent": {
            "system_prompt": "scripted",
            "first_speaker": "agent",
            "transfer_targets": targets,
            "stay_on_call": stay_on_call,
        },
        "trunk": {"sip_port": called_port, "sip_transfer_method": "bridge"},
    }


async def measure_asterisk(pairs: int, seconds: float, settle_s: float = SETTLE_S) -> dict[str, Any]:
    """The same phones through Asterisk, without a briefing. Returns a row."""
    async with Worker("bench.transfer.phones") as phones:
        called_port = (await phones.request("listen", pairs=pairs))["port"]
        async with Asterisk(ASTERISK_FILES, phones=called_port) as asterisk:
            await asyncio.sleep(settle_s)
            idle = await _cpu(asterisk.child.pid, lambda: asyncio.sleep(seconds / 2))
            await phones.request("call", port=asterisk.port, number=str(ASTERISK_EXTENSIONS), count_up=True)
            await _until_answered(phones, pairs)
            await asyncio.sleep(3 * settle_s)
            row = await _measure(asterisk.child.pid, phones, pairs, seconds, idle)
            await phones.request("hang_up")
            await asyncio.sleep(1)
    return {"what": "Asterisk, MixMonitor: one mono recording of each pair", **row}


async def _until_answered(phones: Worker, pairs: int) -> None:
    async with asyncio.timeout(60):
        while (await phones.request("answered"))["answered"] < pairs:  # noqa: ASYNC110 - the worker sends no events
            await asyncio.sleep(0.1)


async def _until_ended(server: Worker, calls: int) -> None:
    async with asyncio.timeout(60):
        while (status := await server.request("status"))["ended"] < calls:  # noqa: ASYNC110 - the worker sends no events
            await asyncio.sleep(0.2)
    if status["ended"] != calls:
        raise RuntimeError(f"{status['ended']} calls, not {calls}: {status}")


async def _cpu(pid: int, work: Callable[[], Awaitable[Any]]) -> dict[str, float]:
    """CPU of a process by thread while `work` runs, % of a core."""
    before, began = thread_seconds(pid), asyncio.get_running_loop().time()
    await work()
    after, elapsed_s = thread_seconds(pid), asyncio.get_running_loop().time() - began
    return {name: 100 * (after[name] - before.get(name, 0.0)) / elapsed_s for name in after}


async def _measure(pid: int, phones: Worker, pairs: int, seconds: float, idle: dict[str, float]) -> dict[str, Any]:
    """Measures connected pairs. The markers begin and end within the time in which the CPU is measured."""
    measured: dict[str, Any] = {}

    async def work() -> None:
        measured.update(await phones.request("measure", seconds=seconds))

    by_thread = await _cpu(pid, work)
    percent, idle_percent = sum(by_thread.values()), sum(idle.values())
    return {
        "pairs": pairs,
        "cpu_percent": round(percent, 1),
        "idle_cpu_percent": round(idle_percent, 1),
        "cpu_percent_per_pair": round(percent / pairs, 3),
        "added_cpu_percent_per_pair": round((percent - idle_percent) / pairs, 3),
        "cpu_by_thread": {name: round(share, 2) for name, share in by_thread.items() if round(share, 2)},
        **measured,
    }


def _hearing(times: list[float | None]) -> dict[str, Any]:
    heard = [each for each in times if each is not None]
    if len(heard) < len(times):
        raise RuntimeError(f"{len(times) - len(heard)} of {len(times)} pairs do not hear each other")
    return {"hearing_ms": [round(float(each), 1) for each in np.percentile(heard, [50, 95, 100])], "n": len(heard)}


async def run(pairs: int = PAIRS, seconds: float = SECONDS, settle_s: float = SETTLE_S) -> list[dict[str, Any]]:
    """The rows of the table."""
    rows = [await measure_trunkline(pairs, seconds, settle_s)]
    if os.geteuid() == 0:  # Asterisk runs in a chroot
        rows.append(await measure_asterisk(pairs, seconds, settle_s))
    return rows


def missed_goals(rows: list[dict[str, Any]]) -> list[str]:
    """The goals that Trunkline's row misses, in words."""
    row = rows[0]
    figures = (
        ("% of a core per pair", row["cpu_percent_per_pair"], CPU_GOAL),
        ("markers lost", row["lost"], 0),
        ("ms of delay (p99)", row["delay_ms"][1], DELAY_GOAL_MS),
        ("ms from the acceptance until both hear each other (p95)", row["hearing_ms"][1], HEARING_GOAL_MS),
    )
    return [f"{value} {what}, more than {goal}" for what, value, goal in figures if value > goal]


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--idle", action="store_true", help="a server without calls alone")
    parser.add_argument(
        "--stay-on-call",
        action="store_true",
        help="Trunkline alone, whose agents listen to both parties of each pair; its models are scripted, so their work"
        " is not measured",
    )
    options = parser.parse_args()
    if options.idle:
        print(json.dumps(asyncio.run(measure_idle(options.seconds))))
        return
    if options.stay_on_call:
        print(json.dumps(asyncio.run(measure_trunkline(options.pairs, options.seconds, stay_on_call=True))))
        return
    for row in asyncio.run(run(options.pairs, options.seconds)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
