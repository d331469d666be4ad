"""Inputs that fuzzing has found, those that once broke something among them: every parser takes each of them."""

from __future__ import annotations

import logging

import pytest

from tests.fuzz.invariants import LONGEST_S, bounded
from tests.fuzz.parsers import CORPUS, CRASHES, PARSERS, kept

STRETCH_ONE_IN = 10
"""Of those that broke nothing; each takes long when it is repeated."""
MOST_BYTES = 600_000
"""Of all that is kept, so that nobody minds to fetch it."""


@pytest.mark.timeout(10 * LONGEST_S)
@pytest.mark.parametrize("name", PARSERS)
def test_it_takes_every_kept_input(name: str) -> None:
    logging.disable()
    inputs = kept(name)
    assert inputs, f"no seeds in {CORPUS / name}"
    for path in inputs:
        try:
            one_in = 1 if CRASHES in path.parents else STRETCH_ONE_IN
            bounded(PARSERS[name], stretch_one_in=one_in)(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{name} breaks on {path.name}: {error!r}") from error


def test_what_is_kept_is_small() -> None:
    kept_files = [path for folder in (CORPUS, CRASHES) for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in kept_files) <= MOST_BYTES
