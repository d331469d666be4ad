"""Smoke test of the benchmarks: runs each once with its smallest parameters and prints a line for each.

    python -m bench.smoke [WORD...]

Words select the benchmarks whose command contains one of them. The exit status is 1 if a benchmark failed; missed goals
do not matter, and the figures mean nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.__main__ import BENCHMARKS

ROOT: Final = Path(__file__).parents[1]
TIMEOUT_S: Final = 300
TAIL_LINES: Final = 15
"""Last lines of a failed benchmark's output that are printed."""
COMMANDS: Final = (
    *(("bench", name, "--quick", "--results", "{folder}") for name in BENCHMARKS),
    ("bench.answer_detection", "--quick"),
    ("bench.audio.echo_cancellation", "--quick"),
    ("bench.models.pocketsphinx", "--turns", "1", "1"),
    ("bench.models.end_of_turn", "cost", "--runs", "2"),
    ("bench.models.fit_telephone_band", "--sentences", "1"),
    ("bench.models.random_gguf", "15M"),
    *(("bench.models.remote_llm", what, "--quick") for what in ("prefix", "connections", "shares")),
    ("bench.knowledge.hostile_documents", "JSON"),
    ("bench.knowledge.retrieval", "quality"),
    ("bench.knowledge.retrieval", "speed", "--passages", "1000", "--questions", "3"),
    ("bench.knowledge.pgvector", "--passages", "500", "--questions", "3"),
    ("bench.web.web_calls", "--calls", "1", "--seconds", "1"),
    ("bench.web.open_streams", "--calls", "2", "--streams", "2", "--seconds", "1"),
    ("bench.web.live_page", "--calls", "3", "--seconds", "1"),
    ("bench.web.call_page", "--turns", "20", "--minutes", "2", "--calls", "600", "--seconds", "1"),
    ("bench.server.soak", "--calls", "2", "--minutes", "0.03", "--warm-up", "2", "--rest", "1"),
    ("bench.nodes.database_load", "--idle", "1", "--calls", "1", "--times", "3", "--most", "3"),
    ("bench.nodes.failover", "--kills", "1", "--setups", "3", "--seconds", "0.5"),
    *((("bench.nodes.fault_schedules", "--schedules", "1"),) if os.geteuid() == 0 else ()),
)
"""Modules with their arguments; `{folder}` is a temporary folder."""


def main(words: list[str]) -> int:
    """Runs the selected benchmarks. Returns the exit status: 1 if one failed or none was selected, else 0."""
    selected = [command for command in COMMANDS if not words or any(word in part for word in words for part in command)]
    failed = [command for command in selected if run(command) != 0]
    return 1 if failed or not selected else 0


def run(command: tuple[str, ...]) -> int:
    """Runs a benchmark and prints its line, and the end of its output if it failed. Returns its exit status."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        module, *arguments = (part.replace("{folder}", folder) for part in command)
        program = ["timeout", "--kill-after=10", str(TIMEOUT_S), sys.executable, "-m", module, *arguments]
        finished = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    took_s = round(time.monotonic() - began_s)
    name = " ".join(["python -m", *command]).replace(" --results {folder}", "")
    print(f"{'failed' if finished.returncode else 'ok':7}{took_s:4} s  {name}", flush=True)
    if finished.returncode:
        lines = finished.stdout.decode(errors="replace").splitlines()[-TAIL_LINES:]
        print("\n".join(f"    {line}" for line in [*lines, f"exit status {finished.returncode}"]), flush=True)
    return finished.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
