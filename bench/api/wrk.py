"""HTTP load by wrk on one route, with one thread: connections stay open and send the next request as soon as the
response has come.

wrk corrects its latencies for coordinated omission: a longer wait than usual also counts for the requests that would
have been sent in the meantime. That raises p99, for every server alike.
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
    """A server: its origin (`http://host:port`), and a valid API key."""

    origin: str
    key: str


@dataclass(frozen=True)
class LoadRequest:
    """The request that is repeated. `body` is JSON in two halves; a counter is inserted between them."""

    method: str
    path: str
    body: tuple[str, str] | None = None


@dataclass(frozen=True)
class WrkResult:
    """The result of one run. `not_2xx`: responses with another status, and missing responses."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    not_2xx: int


def wrk_path() -> str:
    """The path of wrk. Ends the program with a message if it is not installed."""
    path = shutil.which("wrk")
    if path is None:
        raise SystemExit("python -m bench: wrk is missing; it is in the Debian package wrk (`make bench` installs it)")
    return path


async def run_wrk(target: Target, request: LoadRequest, connections: int, seconds: int) -> WrkResult:
    """Repeats a request over `connections` connections for `seconds`. Raises `RuntimeError` if no response came."""
    environment = {**os.environ, "BENCH_METHOD": request.method, "BENCH_KEY": target.key}
    if request.body is not None:
        environment["BENCH_BODY_HEAD"], environment["BENCH_BODY_TAIL"] = request.body
    process = await asyncio.create_subprocess_exec(
        wrk_path(), "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", SCRIPT, target.origin + request.path,
        env=environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"wrk failed with status {process.returncode}: {output.decode()}")
    report: dict[str, Any] = json.loads(output.splitlines()[-1])
    if not report["requests"]:
        raise RuntimeError(f"{request.method} {request.path}: no response in {seconds} s")
    return WrkResult(report["requests"] / report["seconds"], report["p50_ms"], report["p99_ms"], report["not_2xx"])


def median_result(results: list[WrkResult]) -> dict[str, Any]:
    """The median of each figure, and the sum of `not_2xx`."""
    return {
        "requests_per_s": round(median(result.requests_per_s for result in results)),
        "p50_ms": round(median(result.p50_ms for result in results), 2),
        "p99_ms": round(median(result.p99_ms for result in results), 2),
        "not_2xx": sum(result.not_2xx for result in results),
    }
