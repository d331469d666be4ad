"""Every bench once, as small as it can be, one after the other: `python -m bench.smoke [WORD...]` prints a line for
each and ends with 1 when one failed. It proves that they run; figures and missed goals do not matter. With words, only
the benches whose command has one of them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.__main__ import BENCHES

ROOT: Final = Path(__file__).parents[1]
TIMEOUT_S: Final = 300
TAIL: Final = 15
"""Lines of a failed bench's output that are printed."""
COMMANDS: Final = (
    *(("bench", name, "--quick", "--results", "{folder}") for name in BENCHES),
    ("bench.encryption", "2", "--seconds", "1"),
    ("bench.audio.echo", "--quick"),
    ("bench.models.pocketsphinx", "1"),
    ("bench.models.end_of_turn", "cost"),
    ("bench.models.fit_telephone_band",),
    ("bench.models.random_gguf", "15M"),
    ("bench.knowledge.document_reading", "DOCX"),
    ("bench.knowledge.retrieval", "quality"),
    ("bench.knowledge.retrieval", "speed", "--passages", "1000", "--asked", "10"),
    ("bench.server.soak", "--calls", "2", "--minutes", "0.1", "--warm-up", "5"),
)
"""Modules with their arguments; `{folder}` is one that is removed afterwards."""


def main(words: list[str]) -> int:
    """The exit status: 0, or 1 when a bench failed."""
    chosen = [each for each in COMMANDS if not words or any(word in part for word in words for part in each)]
    failed = [each for each in chosen if not runs(each)]
    return 1 if failed or not chosen else 0


def runs(command: tuple[str, ...]) -> bool:
    """Run a bench and print its line; the end of its output, too, when it failed. True if it ended with 0."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        module, *arguments = (part.replace("{folder}", folder) for part in command)
        program = ["timeout", "--kill-after=10", str(TIMEOUT_S), sys.executable, "-m", module, *arguments]
        ended = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    took_s = round(time.monotonic() - began_s)
    name = " ".join(["python -m", *command]).replace(" --results {folder}", "")
    print(f"{'failed' if ended.returncode else 'ok':7}{took_s:4} s  {name}", flush=True)
    if ended.returncode:
        lines = ended.stdout.decode(errors="replace").splitlines()[-TAIL:]
        print("\n".join(f"    {line}" for line in [*lines, f"exit status {ended.returncode}"]), flush=True)
    return ended.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
