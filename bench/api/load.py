"""Load on one route of a server: wrk, one thread; connections stay open and send again as soon as they are answered.

wrk counts a wait that is longer than usual also for the requests that would have been sent meanwhile, so that a server
that stands still is not flattered; that raises p99, for every server alike.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

SCRIPT: Final = Path(__file__).with_suffix(".lua")


@dataclass(frozen=True)
class Target:
    """A server: where it listens (`http://host:port`), and a key that it lets in."""

    origin: str
    key: str


@dataclass(frozen=True)
class LoadRequest:
    """What is sent again and again. `body` is JSON in two halves: a number that grows goes between them."""

    method: str
    path: str
    body: tuple[str, str] | None = None


@dataclass(frozen=True)
class Sample:
    """What one run came to. `not_2xx`: answers of another kind, and answers that did not come."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    not_2xx: int


def wrk() -> str:
    """Where the program is; ends this one when it is missing."""
    found = shutil.which("wrk")
    if found is None:
        raise SystemExit("python -m bench: wrk is missing; it is in the Debian package wrk (`make bench` installs it)")
    return found


async def fire(target: Target, request: LoadRequest, connections: int, seconds: int) -> Sample:
    """Send it over so many connections for so many seconds. Raises `RuntimeError` when nothing was answered."""
    surroundings = {**os.environ, "BENCH_METHOD": request.method, "BENCH_KEY": target.key}
    if request.body is not None:
        surroundings["BENCH_BODY_HEAD"], surroundings["BENCH_BODY_TAIL"] = request.body
    process = await asyncio.create_subprocess_exec(
        wrk(), "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", SCRIPT, target.origin + request.path,
        env=surroundings, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"wrk failed with status {process.returncode}: {output.decode()}")
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    if not found["requests"]:
        raise RuntimeError(f"{request.method} {request.path}: not one answer in {seconds} s")
    return Sample(found["requests"] / found["seconds"], found["p50_ms"], found["p99_ms"], found["not_2xx"])


def middle(samples: list[Sample]) -> dict[str, Any]:
    """The median of each figure; all that was not 2xx."""
    return {
        "requests_per_s": round(median(sample.requests_per_s for sample in samples)),
        "p50_ms": round(median(sample.p50_ms for sample in samples), 2),
        "p99_ms": round(median(sample.p99_ms for sample in samples), 2),
        "not_2xx": sum(sample.not_2xx for sample in samples),
    }
