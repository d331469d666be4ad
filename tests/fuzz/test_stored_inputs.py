"""Replays the inputs that fuzzing has found, including those that once broke a parser, with every parser in Python."""

from __future__ import annotations

import logging

import pytest

from tests.fuzz.invariants import MAX_CPU_S, with_time_limit
from tests.fuzz.parsers import CORPUS, CRASHES, PARSERS, stored_inputs

REPEAT_ONE_IN = 10
"""Share of the corpus that is also checked repeated, because that takes long."""
MAX_STORED_BYTES = 600_000
"""Largest size of all stored inputs, so that they do not slow down a clone of the repository."""


@pytest.mark.timeout(10 * MAX_CPU_S)
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_accepts_every_stored_input(name: str) -> None:
    logging.disable()
    inputs = stored_inputs(name)
    assert inputs, f"no seeds in {CORPUS / name}"
    for path in inputs:
        try:
            one_in = 1 if CRASHES in path.parents else REPEAT_ONE_IN
            with_time_limit(PARSERS[name], repeat_one_in=one_in)(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{name} breaks on {path.name}: {error!r}") from error


def test_the_stored_inputs_are_small() -> None:
    files = [path for folder in (CORPUS, CRASHES) for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MAX_STORED_BYTES
