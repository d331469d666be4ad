"""All benches: `python -m bench [NAME...] [--quick]` prints Markdown tables and writes JSON to bench/results."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.api import api, tenants
from bench.audio import pump
from bench.models import llm, stt, tts
from bench.server import backup, capacity, retention
from bench.turn import pipecat_bench, turn_latency, turn_with_models
from bench.webhooks import kill_storm
from bench.worker_process import machine
from config import logging as logs

RESULTS: Final = Path(__file__).parent / "results"
QUICK_SCENES: Final = (0, 3)
"""Of the bench of turns, when quick: one gap and a barge-in."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """One bench: how to run it (`quick`: to see that it works, not for figures) and which columns its table has."""

    title: str
    run: Callable[[bool], Awaitable[list[Row]]]
    columns: dict[str, str]
    misses: Callable[[list[Row]], list[str]] = lambda rows: []


async def _turn(quick: bool) -> list[Row]:
    """Ours, then the peer, each alone on the machine."""
    pipecat_bench.must_be_there()
    if quick:
        return [*await turn_latency.run((4,), 10.0, scenes=QUICK_SCENES), *await pipecat_bench.run((2,), 10.0)]
    return [*await turn_latency.run(), *await pipecat_bench.run()]


BENCHES: Final = {
    "pump": Bench(
        "Pump: G.711 calls with voice activity and recording; three values are p50 / p99 / max",
        lambda quick: pump.run((20,), 3.0) if quick else pump.run(),
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
        pump.misses,
    ),
    "turn": Bench(
        "Turn: ours over SIP, times taken on the wire, and a peer over its WebSocket; scripted models",
        _turn,
        {
            "what": "what",
            "calls": "calls",
            "n": "n",
            "p50_ms": "p50, ms",
            "p95_ms": "p95, ms",
            "max_ms": "max, ms",
            "goal_ms": "goal (p95), ms",
            "cpu_percent_per_call": "CPU, % of a core per call",
            "cpu_goal": "goal, %",
            "speech_percent": "callers speak, % of the time",
            "reached": "reached",
        },
        turn_latency.misses,
    ),
    "capacity": Bench(
        "Capacity: the whole server with scripted models; calls at once, new calls, encryption, published figures",
        lambda quick: capacity.run((20,), (10,), 5.0) if quick else capacity.run(),
        {
            "what": "what",
            "calls": "calls",
            "cpu_percent_per_call": "CPU, % of a core per call",
            "memory_kb_per_call": "kB per call",
            "wire_deviation_ms": "packet deviation, wire, ms",
            "lost_percent": "packets lost, %",
            "failed": "failed",
            "p50_ms": "p50 to 200, ms",
            "p95_ms": "p95, ms",
            "max_ms": "max, ms",
            "cpu_ms_per_call": "CPU per new call, ms",
            "times_plain": "CPU, times plain",
            "set_up_times_plain": "set-up CPU, times plain",
        },
        capacity.misses,
    ),
    "api": Bench(
        "API: ours and a peer in FastAPI and SQLAlchemy, alone and while calls are up; packets are p50 / p99 / max",
        lambda quick: api.run(1, 1, 20) if quick else api.run(),
        {
            "route": "route",
            "connections": "connections",
            "calls": "calls",
            "requests_per_s": "requests/s",
            "p50_ms": "p50, ms",
            "p99_ms": "p99, ms",
            "not_2xx": "not 2xx",
            "peer_requests_per_s": "peer, requests/s",
            "peer_p50_ms": "peer, p50, ms",
            "peer_p99_ms": "peer, p99, ms",
            "peer_not_2xx": "peer, not 2xx",
            "deviation_idle_ms": "packet deviation, no requests, ms",
            "deviation_loaded_ms": "packet deviation, under load, ms",
        },
        api.misses,
    ),
    "tenants": Bench(
        "Tenants: one asks for pages of the largest agents, another for a list of one item, in calls; p50 / p99 / max",
        lambda quick: tenants.run(3.0, 1, 20) if quick else tenants.run(),
        {
            "what": "load of the first tenant",
            "lists": "lists",
            "list_ms": "a list of one item, ms",
            "packets": "packets",
            "gap_ms": "between two packets, ms",
            "late": "more than 40 ms",
            "answered_ms": "a new call is answered in, ms",
            "peak_mb": "peak memory, MB",
            "ended": "connections ended by the server",
        },
        tenants.misses,
    ),
    "backup": Bench(
        "Backup: beside a database that is written to 100 times a second; writes are p50 / p99 / max",
        lambda quick: backup.run(2000, 20) if quick else backup.run(),
        {
            "backup": "backup",
            "database_mb": "database, MB",
            "size_mb": "archive, MB",
            "s": "s",
            "writes": "writes",
            "write_ms": "a write takes, ms",
            "restored_s": "restored in, s",
        },
    ),
    "retention": Bench(
        "Removal of old calls beside a database that is written to 100 times a second; writes are p50 / p99 / max",
        lambda quick: retention.run(2000) if quick else retention.run(),
        {
            "way": "PRAGMA secure_delete",
            "calls": "calls",
            "emptied": "talks removed",
            "removed": "calls removed",
            "seconds": "s",
            "longest_piece_ms": "longest piece, ms",
            "write_ms": "a write takes, ms",
        },
    ),
    "models-llm": Bench(
        "Language models of real shapes, ours and two peers with the same files and threads",
        llm.run,
        {
            "model": "model",
            "what": "what",
            "ours": "Trunkline",
            "locked": "`Llama` behind a lock",
            "peer": "xllamacpp",
            "times_locked": "times the lock's",
            "times_peer": "times xllamacpp's",
        },
        llm.misses,
    ),
    "models-stt": Bench(
        "Speech to text by a Zipformer of real size, in batches and one by one",
        stt.run,
        {
            "what": "what",
            "search": "search",
            "batch": "batch",
            "calls": "calls",
            "factor": "s of a core for 1 s of sound",
            "p50_ms": "p50, ms",
            "p95_ms": "p95, ms",
            "core_s_per_s": "s of a core for 1 s of a call",
        },
    ),
    "models-tts": Bench(
        "Text to speech: a Piper voice of real size, flite, espeak-ng, and what is kept",
        tts.run,
        {
            "what": "what",
            "first_clause_ms": "first clause, ms",
            "real_time_factor": "real-time factor",
            "last_ms": "the last one waits, ms",
            "times_real_time": "times as fast as heard",
            "cores_a_second": "s of a core for 1 s of speech",
            "sentence_ms": "a sentence, ms",
        },
    ),
    "models-turn": Bench(
        "A whole turn with models of real sizes on the processors: end of speech to first sound",
        turn_with_models.run,
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
        turn_with_models.misses,
    ),
    "webhooks": Bench(
        "Webhooks: calls end while the server is killed again and again and receivers misbehave",
        kill_storm.run,
        {"what": "what", "figure": "figure"},
        kill_storm.misses,
    ),
}


def table(bench: Bench, rows: list[Row]) -> str:
    """A Markdown table."""
    lines = [list(bench.columns.values()), ["---"] * len(bench.columns)]
    lines += [[_cell(row.get(key)) for key in bench.columns] for row in rows]
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
    """Run it and print its table. Returns its rows with the machine, the time and the missed goals."""
    bench, description = BENCHES[name], machine()
    rows = await bench.run(quick)
    misses = bench.misses(rows)
    print(f"\n## {bench.title}\n\n{table(bench, rows)}\n", flush=True)
    for miss in misses:
        print(f"- missed: {miss}", flush=True)
    return {
        "machine": description,
        "at": datetime.datetime.now(datetime.UTC).isoformat(),
        "rows": rows,
        "misses": misses,
    }


def _called(name: str) -> list[str]:
    """The benches of a name: one, or all of a family ("models")."""
    return [bench for bench in BENCHES if bench == name or bench.startswith(f"{name}-")]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "benches", nargs="*", metavar="|".join(BENCHES), help="which; all without; models: all of theirs"
    )
    parser.add_argument("--quick", action="store_true", help="small runs, to see that they work")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where the JSON goes")
    options = parser.parse_args()
    if unknown := [name for name in options.benches if not _called(name)]:
        parser.error(f"no bench is called {', '.join(unknown)}")
    logs.configure("warning", "console")
    print(f"Machine: {json.dumps(machine())}", flush=True)
    for name in [name for each in options.benches for name in _called(each)] or BENCHES:
        result = asyncio.run(run_one(name, options.quick))
        options.results.mkdir(exist_ok=True)
        (options.results / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
