"""Does it run for months? Many calls that come and go for a long time; afterwards everything must be as it was.

A first round warms the server up; what it uses once all its calls are gone is the measure for the second, long one.
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
"""After the last call: SIP's transactions live on for 32 s (RFC 3261, timer D), RTP ports rest."""
SAMPLE_S: Final = 60.0
GROWTH_KB: Final = 16 * 1024
"""What memory may have grown by in the long round."""
ANSWER: Final = "Yes, I have written that down for you. Is there anything else?"


def _descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def _used(server: Worker) -> dict[str, Any]:
    facts = await server.do("facts")
    return {
        "memory_kb": resident_kb(server.pid),
        "descriptors": _descriptors(server.pid),
        **{name: facts[name] for name in ("calls", "legs", "slots", "threads", "tasks", "ended", "reasons")},
        "lost_percent": round(100 * facts["lost"] / max(1, facts["received"] + facts["lost"]), 4),
        "deviation_ms": [round(value, 2) for value in facts["deviation_ms"]],
        "skipped_ticks": facts["skipped_ticks"],
        "cpu_s": round(sum(thread_seconds(server.pid).values()), 1),
    }


async def _round(server: Worker, load: Worker, calls: int, port: int, seconds: float) -> dict[str, Any]:
    """Calls for so long; what is used once they are gone."""
    until = time.monotonic() + seconds
    await load.do("start", calls=calls, port=port, number=NUMBER)
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(SAMPLE_S, left))
        print(json.dumps({"left_s": round(until - time.monotonic()), **await _used(server)}), flush=True)
    made = await load.do("stop")
    await asyncio.sleep(REST_S)
    return {**await _used(server), **made}


async def soak(calls: int, seconds: float, warm_up_s: float = WARM_UP_S) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is used after the first and after the second round."""
    agent = {
        "system_prompt": "scripted", "first_speaker": "agent", "customer_silence_ms": 0,
        "max_call_duration_seconds": 7200,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server, Worker("bench.server.soak_load") as load:
            started = await server.do(
                "start", folder=folder, answer=ANSWER, delays={}, agent=agent,
                settings={"limits": {"max_calls_per_organization": 2 * calls}},
            )  # fmt: skip
            before = await _round(server, load, calls, started["port"], warm_up_s)
            print(json.dumps({"after": "the first round", **before}), flush=True)
            return before, await _round(server, load, calls, started["port"], seconds)


def misses(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is not as it was."""
    found = [f"{after[name]} {name} are left" for name in ("calls", "legs", "slots") if after[name]]
    found += [f"{after['failed']} calls failed"] if after["failed"] else []
    found += [
        f"{name}: {before[name]} before, {after[name]} after"
        for name in ("descriptors", "threads")
        if after[name] > before[name] + 2
    ]
    grown = after["memory_kb"] - before["memory_kb"]
    return found + ([f"memory has grown by {grown} kB"] if grown > GROWTH_KB else [])


def main() -> None:
    """The command; exit status 1 when something is not as it was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, metavar="SECONDS")
    options = parser.parse_args()
    before, after = asyncio.run(soak(options.calls, 60 * options.minutes, options.warm_up))
    print(json.dumps({"after": "the second round", **after}))
    found = misses(before, after)
    for miss in found:
        print(f"missed: {miss}")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
