"""Language models that many calls share: ours beside llama-cpp-python's high-level `Llama` behind a lock and beside
llama.cpp's own server (xllamacpp), on the same files of random weights (`model_shapes`), with the same threads, all
taking the likeliest word.

Each model has a process of its own; they measure in turns, so that what else the machine does hits all of them. Threads
that wait do so alike (`models.llm.llama` says why).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from bench.models.random_gguf import shape_file
from bench.worker_process import Worker

PEER_PYTHON: Final = Path(__file__).parents[2] / "build/peer-models/bin/python"
OURS, LOCKED, PEER = "ours", "locked", "peer"
NAMES: Final = {OURS: "Trunkline", LOCKED: "`Llama` behind a lock", PEER: "xllamacpp"}
TURNS: Final = (1, 2, 10)
MANY: Final = 8
"""Calls at which the goals hold."""
TIMES_LOCKED: Final = 5.0
TIMES_PEER: Final = 0.9
LATE_MS: Final = 120

Row = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much is measured of a shape: `calls` at once for so many `seconds`, everything so many `times`."""

    shape: str
    calls: tuple[int, ...] = (1, 4, 8, 16)
    seconds: float = 20.0
    times: int = 1


FULL: Final = (
    Effort("15M", seconds=3.0),
    Effort("0.6B"),
    Effort("1.7B", calls=(1, 8), seconds=30.0),
)
QUICK: Final = (Effort("15M", calls=(1, 4), seconds=0.5, times=1),)


def must_be_there() -> None:
    """Raises `SystemExit` without the peer's environment."""
    if not PEER_PYTHON.exists():
        raise SystemExit("python -m bench: build/peer-models is missing; `scripts/venv.sh peer` makes it")


async def run(quick: bool) -> list[Row]:
    """The rows of the table, of all shapes."""
    must_be_there()
    return [row for effort in (QUICK if quick else FULL) for row in await measure(effort)]


async def measure(effort: Effort) -> list[Row]:
    """The rows of one shape."""
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    path = str(await asyncio.to_thread(shape_file, effort.shape))
    async with AsyncExitStack() as stack:
        models: dict[str, Worker] = {}
        for name in NAMES:
            python = str(PEER_PYTHON) if name == PEER else sys.executable
            models[name] = await stack.enter_async_context(Worker("bench.models.llm_server", python))
            await models[name].do("start", model=name, path=path)
        parts = [await part(models, effort) for part in (_first_tokens, _beside, _turns)]
    return [{"model": effort.shape, **row} for rows in parts for row in rows]


async def _in_turns(models: dict[str, Worker], times: int, what: str, **how: Any) -> dict[str, list[Row]]:
    """What each says, so many times, one after the other."""
    said: dict[str, list[Row]] = {name: [] for name in models}
    for _ in range(times):
        for name, model in models.items():
            said[name].append(await model.do("measure", name=what, **how))
            print(f"    {what} {name}: {json.dumps(said[name][-1])[:200]}", file=sys.stderr, flush=True)
    return said


async def _turns(models: dict[str, Worker], effort: Effort) -> list[Row]:
    rows = []
    for calls, alike in [*((calls, False) for calls in effort.calls), (min(MANY, max(effort.calls)), True)]:
        for name, model in models.items():  # behind the lock one call is known at a time
            await model.do("measure", name="prepare", calls=calls, alike=alike, read=name != LOCKED)
        said = await _in_turns(models, effort.times, "turns", calls=calls, alike=alike, seconds=effort.seconds)
        who = f"{calls} calls of one agent" if alike else f"{calls} calls"
        rates = {name: [row["turns_per_s"] for row in said[name]] for name in NAMES}
        rows.append(
            _row(f"turns/s, {who}", {name: round(median(rates[name]), 2) for name in NAMES})
            | {"calls": calls, "kind": "alike" if alike else "turns", "each": rates}
        )
        waits = {name: _ms([row["first_s"] for row in said[name] if row["first_s"] is not None]) for name in NAMES}
        rows.append(_row(f"first token of such a turn, {who}, ms", waits))
    return rows


async def _first_tokens(models: dict[str, Worker], effort: Effort) -> list[Row]:
    said = await _in_turns(models, effort.times, "first_tokens", turns=TURNS)
    rows = []
    for place, turn in enumerate(TURNS):
        waits = {name: _ms([row["first_s"][place] for row in said[name]]) for name in NAMES}
        rows.append(_row(f"first token of turn {turn}, one call, ms", waits))
    for who in (f"{MANY} calls", f"{MANY} calls of one agent"):
        alike = who.endswith("agent")
        said = await _in_turns(models, 1, "second_turns", calls=MANY, alike=alike)
        for title, best in (("median", median), ("last", max)):
            waits = {name: _ms([best(row["first_s"]) for row in said[name]]) for name in NAMES}
            row = _row(f"first token of turn 2, {who} ask in one moment, {title}, ms", waits)
            rows.append(row | ({"kind": "second"} if title == "median" and not alike else {}))
    return rows


async def _beside(models: dict[str, Worker], effort: Effort) -> list[Row]:
    said = await _in_turns(models, effort.times, "beside")
    late, rows = {}, []
    for name in NAMES:
        gaps = [gap for row in said[name] for gap in row["gaps_s"]]
        alone = median(gap for row in said[name] for gap in row["alone_s"])
        late[name] = [round(1000 * (float(np.percentile(gaps, share)) - alone)) for share in (50, 95, 100)]
    row = _row("a word is late while another call's 600 tokens are read, p50 / p95 / max, ms", late, ratio=False)
    rows.append(row | {"kind": "beside"})
    waits = {name: _ms([row["first_s"] for row in said[name]]) for name in NAMES}
    return [*rows, _row("first token of that other call, ms", waits)]


def _ms(seconds: Sequence[float]) -> float | None:
    return round(1000 * median(seconds)) if seconds else None


def _row(what: str, values: dict[str, Any], *, ratio: bool = True) -> Row:
    """With ratios: how many times as much as each of the others."""
    row = {"what": what, **values}
    for other in (LOCKED, PEER) if ratio else ():
        if values[OURS] and values[other]:
            row[f"times_{other}"] = round(values[OURS] / values[other], 2)
    return row


def misses(rows: Sequence[Row]) -> list[str]:
    """Which rows miss which goal, in words."""
    found = []
    for row in rows:
        name = f"{row['model']}, {row['what']}"
        match row.get("kind"):
            case "turns" if row["calls"] == MANY:
                if row["times_locked"] < TIMES_LOCKED:
                    found.append(f"{name}: {row['times_locked']} times the lock's, less than {TIMES_LOCKED}")
                if row["times_peer"] < TIMES_PEER:
                    found.append(f"{name}: {row['times_peer']} times xllamacpp's, less than {TIMES_PEER}")
            case "second" if row["times_locked"] > 1 / TIMES_LOCKED:
                found.append(f"{name}: {row['times_locked']} of the lock's, more than {1 / TIMES_LOCKED}")
            case "beside" if row[OURS][-1] > LATE_MS:
                found.append(f"{name}: up to {row[OURS][-1]} ms, more than {LATE_MS}")
    return found


def main() -> None:
    """Print the rows of shapes as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", help="all without one")
    for effort in FULL:
        if not (shapes := parser.parse_args().shapes) or effort.shape in shapes:
            rows = asyncio.run(measure(effort))
            print("\n".join(map(json.dumps, [*rows, *misses(rows)])), flush=True)


if __name__ == "__main__":
    main()
