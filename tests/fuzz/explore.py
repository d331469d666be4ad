"""Coverage-guided fuzzing of one parser in Python: `python -m tests.fuzz.explore NAME [libFuzzer's options] FOLDER...`.

The first folder receives new inputs, the others are only read. Started by scripts/fuzz.sh, which installs Atheris.
FUZZ_PROGRAM: a program that starts this for the same parser, for libFuzzer to start again.
"""

from __future__ import annotations

import logging
import os
import sys

import atheris

with atheris.instrument_imports(include=["storage", "sipcore", "models", "markdown_it", "html", "csv", "json"]):
    from tests.fuzz.invariants import bounded
    from tests.fuzz.parsers import PARSERS

STRETCH_ONE_IN = 100


def main() -> None:
    """Until the time is over, or an input raises something."""
    logging.disable()
    check = bounded(PARSERS[sys.argv[1]], stretch_one_in=STRETCH_ONE_IN)
    atheris.Setup([os.environ.get("FUZZ_PROGRAM", sys.argv[0]), *sys.argv[2:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
