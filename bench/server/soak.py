"""Soak test: calls begin and end for a long time; afterwards the server must use no more memory, threads, file
descriptors, legs or pump slots than before.

A first round warms the server up; its resource usage once all calls have ended is the baseline for the second, long
round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.turn.server import NUMBER
from bench.worker_process import Worker, resident_kb, thread_seconds

WARM_UP_S: Final = 150.0
REST_S: Final = 45.0
"""Wait after the last call: SIP transactions linger for 32 s (RFC 3261, timer D), and RTP ports are not reused at
once."""
SAMPLE_S: Final = 60.0
MAX_GROWTH_KB: Final = 16 * 1024
"""Largest allowed growth of memory in the second round."""
ANSWER: Final = "Yes, I have written that down for you. Is there anything else?"


def _descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def _usage(server: Worker) -> dict[str, Any]:
    status = await server.request("status")
    return {
        "memory_kb": resident_kb(server.pid),
        "descriptors": _descriptors(server.pid),
        **{name: status[name] for name in ("calls", "legs", "slots", "threads", "tasks", "ended", "reasons")},
        "lost_percent": round(100 * status["lost"] / max(1, status["received"] + status["lost"]), 4),
        "deviation_ms": [round(value, 2) for value in status["deviation_ms"]],
        "skipped_ticks": status["skipped_ticks"],
        "cpu_s": round(sum(thread_seconds(server.pid).values()), 1),
    }


async def _round(server: Worker, load: Worker, calls: int, port: int, seconds: float, rest_s: float) -> dict[str, Any]:
    """Places calls for `seconds`. Returns the server's resource usage `rest_s` after the last one."""
    until = time.monotonic() + seconds
    await load.request("start", calls=calls, port=port, number=NUMBER)
    while (remaining_s := until - time.monotonic()) > 0:
        await asyncio.sleep(min(SAMPLE_S, remaining_s))
        print(json.dumps({"remaining_s": round(until - time.monotonic()), **await _usage(server)}), flush=True)
    placed = await load.request("stop")
    await asyncio.sleep(rest_s)
    return {**await _usage(server), **placed}


async def soak(
    calls: int, seconds: float, warm_up_s: float = WARM_UP_S, rest_s: float = REST_S
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the server's resource usage after the first and after the second round."""
    agent = {
        "system_prompt": "scripted", "first_speaker": "agent", "customer_silence_ms": 0,
        "max_call_duration_seconds": 7200,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server, Worker("bench.server.soak_load") as load:
            started = await server.request(
                "start", folder=folder, answer=ANSWER, delays={}, agent=agent,
                settings={"limits": {"max_calls_per_organization": 2 * calls}},
            )  # fmt: skip
            before = await _round(server, load, calls, started["port"], warm_up_s, rest_s)
            print(json.dumps({"after": "the first round", **before}), flush=True)
            return before, await _round(server, load, calls, started["port"], seconds, rest_s)


def missed_goals(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The resources that the server still uses or uses more of after the second round, and failed calls, in words."""
    missed = [f"{after[name]} {name} are still in use" for name in ("calls", "legs", "slots") if after[name]]
    missed += [f"{after['failed']} calls failed"] if after["failed"] else []
    missed += [
        f"{name}: {before[name]} before, {after[name]} after"
        for name in ("descriptors", "threads")
        if after[name] > before[name] + 2
    ]
    growth_kb = after["memory_kb"] - before["memory_kb"]
    return missed + ([f"memory has grown by {growth_kb} kB"] if growth_kb > MAX_GROWTH_KB else [])


def main() -> None:
    """The command; exit status 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, metavar="SECONDS")
    parser.add_argument("--rest", type=float, default=REST_S, metavar="SECONDS", help="wait after the last call")
    options = parser.parse_args()
    before, after = asyncio.run(soak(options.calls, 60 * options.minutes, options.warm_up, options.rest))
    print(json.dumps({"after": "the second round", **after}))
    missed = missed_goals(before, after)
    for goal in missed:
        print(f"missed: {goal}")
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
