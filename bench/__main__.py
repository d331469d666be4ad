"""All benchmarks: `python -m bench [NAME...] [--quick]` prints Markdown tables and writes JSON to bench/results."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.api import noisy_neighbour, route_throughput
from bench.audio import pump
from bench.models import llm, stt, tts
from bench.nodes import api as nodes_api
from bench.nodes import registrations
from bench.nodes import storage as nodes_storage
from bench.server import backup, capacity, retention
from bench.transfer import bridged_pairs
from bench.turn import pipecat_latency, turn_latency, turn_latency_with_models
from bench.webhooks import fault_injection
from bench.worker_process import machine
from config import logging as logs

RESULTS: Final = Path(__file__).parent / "results"
QUICK_SCENARIOS: Final = (0, 3)
"""Scenarios of the turn benchmark with `--quick`: one response gap and a barge-in."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. `run` takes `quick`: True runs it with small parameters, which prove that it works and give no
    usable figures. `columns` are the titles of the table's columns by the keys of the rows."""

    title: str
    run: Callable[[bool], Awaitable[list[Row]]]
    columns: dict[str, str]
    missed_goals: Callable[[list[Row]], list[str]] = lambda rows: []


async def _turn(quick: bool) -> list[Row]:
    """Trunkline, then Pipecat, each alone on the machine."""
    pipecat_latency.require_environment()
    if quick:
        rows = await turn_latency.run((4,), 8.0, scenarios=QUICK_SCENARIOS, settle_s=1.0)
        return [*rows, *await pipecat_latency.run((2,), 9.0, settle_s=0.0)]
    return [*await turn_latency.run(), *await pipecat_latency.run()]


BENCHMARKS: Final = {
    "pump": Benchmark(
        "Audio pump: G.711 calls with voice activity detection and recording; three values are p50 / p99 / max",
        lambda quick: pump.run((4,), 1.0, settle_s=1.0) if quick else pump.run(),
        {
            "calls": "calls",
            "spinning": "spinning thread",
            "cpu_percent": "CPU, % of a core",
            "cpu_percent_per_call": "% per call",
            "memory_kb_per_call": "kB per call",
            "lateness_ms": "tick lateness, ms",
            "deviation_ms": "packet deviation, pump, ms",
            "wire_deviation_ms": "packet deviation, wire, ms",
            "skipped_ticks": "skipped ticks",
        },
        pump.missed_goals,
    ),
    "turn": Benchmark(
        "Turn latency with scripted models: Trunkline over SIP, measured on the wire, and Pipecat over its WebSocket",
        _turn,
        {
            "what": "measurement",
            "calls": "calls",
            "n": "n",
            "p50_ms": "p50, ms",
            "p95_ms": "p95, ms",
            "max_ms": "max, ms",
            "goal_ms": "goal (p95), ms",
            "cpu_percent_per_call": "CPU, % of a core per call",
            "cpu_goal": "goal, %",
            "speech_percent": "callers speak, % of the time",
            "reached": "goals reached",
        },
        turn_latency.missed_goals,
    ),
    "capacity": Benchmark(
        "Capacity of the server with scripted models: concurrent calls, new calls, encryption, published figures",
        lambda quick: capacity.run_quick() if quick else capacity.run(),
        {
            "what": "measurement",
            "calls": "calls",
            "cpu_percent_per_call": "CPU, % of a core per call",
            "memory_kb_per_call": "kB per call",
            "wire_deviation_ms": "packet deviation, wire, ms",
            "lost_percent": "packets lost, %",
            "failed": "failed",
            "p50_ms": "INVITE to 200: p50, ms",
            "p95_ms": "p95, ms",
            "max_ms": "max, ms",
            "cpu_ms_per_call": "CPU per new call, ms",
            "times_plain": "CPU, times unencrypted",
            "set_up_times_plain": "call setup CPU, times unencrypted",
        },
        capacity.missed_goals,
    ),
    "transfer": Benchmark(
        "Connected transfers: bridged pairs of calls with recording, PCMU; Trunkline and Asterisk",
        lambda quick: bridged_pairs.run(2, 1.0, settle_s=2.0) if quick else bridged_pairs.run(),
        {
            "what": "measurement",
            "pairs": "pairs",
            "cpu_percent": "CPU, % of a core",
            "cpu_percent_per_pair": "% per pair",
            "added_cpu_percent_per_pair": "% per pair, less an idle server",
            "delay_ms": "delay (p50 / p99 / max), ms",
            "sent": "markers",
            "lost": "lost",
            "hearing_ms": "accepted until both hear each other (p50 / p95 / max), ms",
        },
        bridged_pairs.missed_goals,
    ),
    "api": Benchmark(
        "API throughput: Trunkline and FastAPI with SQLAlchemy, alone and during calls; packets are p50 / p99 / max",
        lambda quick: route_throughput.run_quick() if quick else route_throughput.run(),
        {
            "route": "route",
            "connections": "connections",
            "calls": "calls",
            "requests_per_s": "requests/s",
            "p50_ms": "p50, ms",
            "p99_ms": "p99, ms",
            "not_2xx": "not 2xx",
            "fastapi_requests_per_s": "FastAPI, requests/s",
            "fastapi_p50_ms": "FastAPI, p50, ms",
            "fastapi_p99_ms": "FastAPI, p99, ms",
            "fastapi_not_2xx": "FastAPI, not 2xx",
            "deviation_idle_ms": "packet deviation, no requests, ms",
            "deviation_loaded_ms": "packet deviation, under load, ms",
        },
        route_throughput.missed_goals,
    ),
    "tenants": Benchmark(
        "Noisy neighbour: one tenant lists the largest agents, another lists one agent and has calls; p50 / p99 / max",
        lambda quick: noisy_neighbour.run(1.0, 1, 20, settle_s=1.0) if quick else noisy_neighbour.run(),
        {
            "what": "load of the first tenant",
            "lists": "list requests",
            "list_ms": "list of one agent, ms",
            "packets": "packets",
            "gap_ms": "between two packets, ms",
            "late": "gaps over 40 ms",
            "answered_ms": "new call: INVITE to 200, ms",
            "peak_mb": "peak memory, MB",
            "ended": "connections ended by the server",
        },
        noisy_neighbour.missed_goals,
    ),
    "backup": Benchmark(
        "Backup of a database with 100 writes per second; write times are p50 / p99 / max",
        lambda quick: backup.run(2000, 20, idle_s=1.0) if quick else backup.run(),
        {
            "backup": "backup",
            "database_mb": "database, MB",
            "size_mb": "archive, MB",
            "s": "backup, s",
            "writes": "writes",
            "write_ms": "write, ms",
            "restored_s": "restore, s",
        },
    ),
    "retention": Benchmark(
        "Retention: removal of old calls from a database with 100 writes per second; write times are p50 / p99 / max",
        lambda quick: retention.run(2000, idle_s=1.0) if quick else retention.run(),
        {
            "secure_delete": "PRAGMA secure_delete",
            "calls": "calls",
            "transcripts_removed": "transcripts removed",
            "calls_removed": "calls removed",
            "seconds": "s",
            "longest_batch_ms": "longest batch, ms",
            "write_ms": "write, ms",
        },
    ),
    "models-llm": Benchmark(
        "Language models of real shapes: Trunkline, `Llama` behind a lock, xllamacpp; with the same files and threads",
        llm.run,
        {
            "model": "model",
            "what": "measurement",
            "trunkline": "Trunkline",
            "locked_llama": "`Llama` behind a lock",
            "xllamacpp": "xllamacpp",
            "times_locked_llama": "times the locked `Llama`",
            "times_xllamacpp": "times xllamacpp",
        },
        llm.missed_goals,
    ),
    "models-stt": Benchmark(
        "Speech to text with a Zipformer of real size, batched and unbatched",
        stt.run,
        {
            "what": "measurement",
            "search": "search",
            "batch": "batch",
            "calls": "calls",
            "real_time_factor": "real-time factor, one core",
            "p50_ms": "p50, ms",
            "p95_ms": "p95, ms",
            "cpu_s_per_s": "CPU s per 1 s of a call",
        },
    ),
    "models-tts": Benchmark(
        "Text to speech: a Piper voice of real size, flite, espeak-ng, and the speech caches",
        tts.run,
        {
            "what": "measurement",
            "first_clause_ms": "first clause, ms",
            "real_time_factor": "real-time factor",
            "last_ms": "last sentence ready, ms",
            "times_real_time": "times real time",
            "cpu_s_per_s": "CPU s per 1 s of speech",
            "sentence_ms": "one sentence, ms",
        },
    ),
    "models-turn": Benchmark(
        "Turn latency with models of real sizes on the CPU: end of speech to first sound",
        turn_latency_with_models.run,
        {
            "what": "models",
            "calls": "calls",
            "n": "n",
            "p50_ms": "p50, ms",
            "p95_ms": "p95, ms",
            "max_ms": "max, ms",
            "lateness_ms": "tick lateness (p50 / p99 / max), ms",
            "deviation_ms": "packet deviation, ms",
            "skipped_ticks": "skipped ticks",
        },
        turn_latency_with_models.missed_goals,
    ),
    "nodes-api": Benchmark(
        "One server on PostgreSQL and on SQLite; three nodes and one; times are p50 / p95",
        lambda quick: nodes_api.run_quick() if quick else nodes_api.run(),
        {
            "what": "measurement",
            "n": "n",
            "sqlite_ms": "SQLite, ms",
            "postgresql_ms": "PostgreSQL, ms",
            "ratio": "PostgreSQL, times SQLite",
            "servers_cpu_ms": "CPU of the servers per call, ms",
            "postgresql_cpu_ms": "CPU of PostgreSQL per call, ms",
            "transactions": "transactions per call",
            "idle_transactions_per_s": "transactions a second without calls",
            "idle_percent": "CPU without calls (servers / PostgreSQL), % of a core",
            "seconds": "s",
        },
        nodes_api.missed_goals,
    ),
    "nodes-storage": Benchmark(
        "Storage functions on PostgreSQL and on SQLite",
        lambda quick: nodes_storage.run(1, 20) if quick else nodes_storage.run(),
        {
            "what": "work",
            "sqlite_p50_ms": "SQLite: p50, ms",
            "sqlite_p95_ms": "p95, ms",
            "postgresql_p50_ms": "PostgreSQL: p50, ms",
            "postgresql_p95_ms": "p95, ms",
            "ratio_p50": "times, p50",
            "ratio_p95": "times, p95",
        },
    ),
    "nodes-registrations": Benchmark(
        "Registrations of three nodes at one registrar",
        lambda quick: registrations.run(30) if quick else registrations.run(),
        {"what": "measurement", "seconds": "s", "registers": "REGISTERs", "unbound": "numbers that were unbound"},
        registrations.missed_goals,
    ),
    "webhooks": Benchmark(
        "Webhooks: delivery while the server is killed (`kill -9`) repeatedly and the receivers fail",
        fault_injection.run,
        {"what": "measurement", "figure": "figure"},
        fault_injection.missed_goals,
    ),
}


def table(benchmark: Benchmark, rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [list(benchmark.columns.values()), ["---"] * len(benchmark.columns)]
    lines += [[_cell(row.get(key)) for key in benchmark.columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return " / ".join(str(part) for part in value)
        case _:
            return str(value)


async def run_one(name: str, quick: bool) -> Row:
    """Runs a benchmark and prints its table. Returns its rows with the machine, the time and the missed goals."""
    benchmark, description = BENCHMARKS[name], machine()
    rows = await benchmark.run(quick)
    missed_goals = benchmark.missed_goals(rows)
    print(f"\n## {benchmark.title}\n\n{table(benchmark, rows)}\n", flush=True)
    for goal in missed_goals:
        print(f"- missed: {goal}", flush=True)
    return {
        "machine": description,
        "at": datetime.datetime.now(datetime.UTC).isoformat(),
        "rows": rows,
        "missed_goals": missed_goals,
    }


def _matching(name: str) -> list[str]:
    """The benchmark of a name, or all of a family ("models")."""
    return [benchmark for benchmark in BENCHMARKS if benchmark == name or benchmark.startswith(f"{name}-")]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "benchmarks",
        nargs="*",
        metavar="|".join(BENCHMARKS),
        help="the benchmarks to run, by default all; `models` runs all of models-*",
    )
    parser.add_argument("--quick", action="store_true", help="small parameters, only to prove that they work")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="folder for the JSON results")
    options = parser.parse_args()
    if unknown := [name for name in options.benchmarks if not _matching(name)]:
        parser.error(f"there is no benchmark {', '.join(unknown)}")
    logs.configure("warning", "console")
    print(f"Machine: {json.dumps(machine())}", flush=True)
    selected = [benchmark for name in options.benchmarks for benchmark in _matching(name)]
    for name in selected or BENCHMARKS:
        result = asyncio.run(run_one(name, options.quick))
        options.results.mkdir(exist_ok=True)
        (options.results / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
