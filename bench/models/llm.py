"""Language models shared by many calls: Trunkline's, llama-cpp-python's high-level `Llama` behind a lock, and
llama.cpp's own server (xllamacpp), with the same random-weight files (`bench.models.random_gguf`), the same number of
threads and greedy sampling.

Each model has a process of its own; they are measured in turns, so that other load on the machine affects all of them.
Waiting threads wait in the same way in all of them (see `models.llm.llama`).
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

XLLAMACPP_PYTHON: Final = Path(__file__).parents[2] / "build/peer-models/bin/python"
TRUNKLINE, LOCKED_LLAMA, XLLAMACPP = "trunkline", "locked_llama", "xllamacpp"
NAMES: Final = (TRUNKLINE, LOCKED_LLAMA, XLLAMACPP)
TURNS: Final = (1, 2, 10)
GOAL_CALLS: Final = 8
"""Number of calls for which the goals hold."""
MIN_TIMES_LOCKED_LLAMA: Final = 5.0
MIN_TIMES_XLLAMACPP: Final = 0.9
MAX_DELAY_MS: Final = 120

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """The measurements of a shape: with each number of concurrent `calls` for `seconds`, everything `times` times."""

    shape: str
    calls: tuple[int, ...] = (1, 4, 8, 16)
    seconds: float = 20.0
    times: int = 1


FULL: Final = (
    Plan("15M", seconds=3.0),
    Plan("0.6B"),
    Plan("1.7B", calls=(1, 8), seconds=30.0),
)
QUICK: Final = (Plan("15M", calls=(1, 2), seconds=0.5),)


def require_environment() -> None:
    """Ends the program with a message if xllamacpp's Python environment is not installed."""
    if not XLLAMACPP_PYTHON.exists():
        raise SystemExit("python -m bench: build/peer-models is missing; `scripts/venv.sh peer` creates it")


async def run(quick: bool) -> list[Row]:
    """The rows of the table for all shapes."""
    require_environment()
    return [row for plan in (QUICK if quick else FULL) for row in await measure(plan)]


async def measure(plan: Plan) -> list[Row]:
    """The rows of one shape."""
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    path = str(await asyncio.to_thread(shape_file, plan.shape))
    async with AsyncExitStack() as stack:
        models: dict[str, Worker] = {}
        for name in NAMES:
            python = str(XLLAMACPP_PYTHON) if name == XLLAMACPP else sys.executable
            models[name] = await stack.enter_async_context(Worker("bench.models.llm_worker", python))
            await models[name].request("start", model=name, path=path)
        results = [await measurement(models, plan) for measurement in (_first_tokens, _prefill_interference, _turns)]
    return [{"model": plan.shape, **row} for rows in results for row in rows]


async def _in_turns(models: dict[str, Worker], times: int, measurement: str, **how: Any) -> dict[str, list[Row]]:
    """Runs a measurement of `LlmSessions` with each model in turn, `times` times. Returns the results of each model."""
    results: dict[str, list[Row]] = {name: [] for name in models}
    for _ in range(times):
        for name, model in models.items():
            results[name].append(await model.request("measure", name=measurement, **how))
            print(f"    {measurement} {name}: {json.dumps(results[name][-1])[:200]}", file=sys.stderr, flush=True)
    return results


async def _turns(models: dict[str, Worker], plan: Plan) -> list[Row]:
    rows = []
    for calls, one_agent in [*((calls, False) for calls in plan.calls), (min(GOAL_CALLS, max(plan.calls)), True)]:
        for name, model in models.items():  # `Llama` caches the prompt of one call only
            prefill = name != LOCKED_LLAMA
            await model.request("measure", name="prepare", calls=calls, one_agent=one_agent, prefill=prefill)
        results = await _in_turns(models, plan.times, "turns", calls=calls, one_agent=one_agent, seconds=plan.seconds)
        load = f"{calls} calls of one agent" if one_agent else f"{calls} calls"
        rates = {name: [row["turns_per_s"] for row in results[name]] for name in NAMES}
        rows.append(
            _row(f"turns/s, {load}", {name: round(median(rates[name]), 2) for name in NAMES})
            | {"calls": calls, "kind": "one_agent" if one_agent else "turns", "each": rates}
        )
        first_ms = {
            name: _ms([row["first_s"] for row in results[name] if row["first_s"] is not None]) for name in NAMES
        }
        rows.append(_row(f"first token of such a turn, {load}, ms", first_ms))
    return rows


async def _first_tokens(models: dict[str, Worker], plan: Plan) -> list[Row]:
    results = await _in_turns(models, plan.times, "first_tokens", turns=TURNS)
    rows = []
    for index, turn in enumerate(TURNS):
        first_ms = {name: _ms([row["first_s"][index] for row in results[name]]) for name in NAMES}
        rows.append(_row(f"first token of turn {turn}, one call, ms", first_ms))
    calls = min(GOAL_CALLS, max(plan.calls))
    for load, one_agent in ((f"{calls} calls", False), (f"{calls} calls of one agent", True)):
        results = await _in_turns(models, 1, "second_turns", calls=calls, one_agent=one_agent)
        for title, aggregate in (("median", median), ("last", max)):
            first_ms = {name: _ms([aggregate(row["first_s"]) for row in results[name]]) for name in NAMES}
            row = _row(f"first token of turn 2, {load} at the same moment, {title}, ms", first_ms)
            rows.append(row | ({"kind": "second"} if title == "median" and not one_agent else {}))
    return rows


async def _prefill_interference(models: dict[str, Worker], plan: Plan) -> list[Row]:
    results = await _in_turns(models, plan.times, "prefill_interference")
    delays, rows = {}, []
    for name in NAMES:
        gaps = [gap for row in results[name] for gap in row["gaps_s"]]
        alone = median(gap for row in results[name] for gap in row["alone_s"])
        delays[name] = [round(1000 * (float(np.percentile(gaps, percent)) - alone)) for percent in (50, 95, 100)]
    row = _row(
        "delay of a token during the prefill of another call's 600 tokens, p50 / p95 / max, ms", delays, ratio=False
    )
    rows.append(row | {"kind": "prefill_interference"})
    first_ms = {name: _ms([row["first_s"] for row in results[name]]) for name in NAMES}
    return [*rows, _row("first token of that other call, ms", first_ms)]


def _ms(seconds: Sequence[float]) -> float | None:
    return round(1000 * median(seconds)) if seconds else None


def _row(what: str, values: dict[str, Any], *, ratio: bool = True) -> Row:
    """A row; with `ratio` also Trunkline's value as a multiple of each of the others."""
    row = {"what": what, **values}
    for other in (LOCKED_LLAMA, XLLAMACPP) if ratio else ():
        if values[TRUNKLINE] and values[other]:
            row[f"times_{other}"] = round(values[TRUNKLINE] / values[other], 2)
    return row


def missed_goals(rows: Sequence[Row]) -> list[str]:
    """The goals that rows miss, in words."""
    missed = []
    for row in rows:
        name = f"{row['model']}, {row['what']}"
        match row.get("kind"):
            case "turns" if row["calls"] == GOAL_CALLS:
                times_locked, times_xllamacpp = row["times_locked_llama"], row["times_xllamacpp"]
                if times_locked < MIN_TIMES_LOCKED_LLAMA:
                    missed.append(
                        f"{name}: {times_locked} times the locked `Llama`, less than {MIN_TIMES_LOCKED_LLAMA}"
                    )
                if times_xllamacpp < MIN_TIMES_XLLAMACPP:
                    missed.append(f"{name}: {times_xllamacpp} times xllamacpp, less than {MIN_TIMES_XLLAMACPP}")
            case "second" if row["times_locked_llama"] > 1 / MIN_TIMES_LOCKED_LLAMA:
                ratio = row["times_locked_llama"]
                missed.append(f"{name}: {ratio} of the locked `Llama`, more than {1 / MIN_TIMES_LOCKED_LLAMA}")
            case "prefill_interference" if row[TRUNKLINE][-1] > MAX_DELAY_MS:
                missed.append(f"{name}: up to {row[TRUNKLINE][-1]} ms, more than {MAX_DELAY_MS}")
    return missed


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", help="the shapes to measure, by default all")
    for plan in FULL:
        if not (shapes := parser.parse_args().shapes) or plan.shape in shapes:
            rows = asyncio.run(measure(plan))
            print("\n".join(map(json.dumps, [*rows, *missed_goals(rows)])), flush=True)


if __name__ == "__main__":
    main()
