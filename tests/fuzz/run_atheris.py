"""Coverage-guided fuzzing of one parser in Python: `python -m tests.fuzz.run_atheris NAME [libFuzzer's options]
FOLDER...`.

The first folder receives new inputs, the others are only read. Started by scripts/fuzz.sh, which installs Atheris.
FUZZ_PROGRAM: a program that starts this module for the same parser; libFuzzer restarts itself with it.
"""

from __future__ import annotations

import logging
import os
import sys

import atheris

with atheris.instrument_imports(include=["storage", "sipcore", "models", "markdown_it", "html", "csv", "json"]):
    from tests.fuzz.invariants import with_time_limit
    from tests.fuzz.parsers import PARSERS

REPEAT_ONE_IN = 100


def main() -> None:
    """Fuzzes until the time is over or an input raises an exception."""
    logging.disable()
    check = with_time_limit(PARSERS[sys.argv[1]], repeat_one_in=REPEAT_ONE_IN)
    atheris.Setup([os.environ.get("FUZZ_PROGRAM", sys.argv[0]), *sys.argv[2:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
