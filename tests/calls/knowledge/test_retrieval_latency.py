"""What it is worth to look into the documents while the caller speaks."""

from __future__ import annotations

import pytest

from tests.calls.knowledge.retrieval_simulation import PACES, SEARCH_S, Pace, outcome


@pytest.mark.parametrize("pace", PACES, ids=[pace.name for pace in PACES])
def test_an_answer_from_a_document_that_is_told_ahead_needs_the_model_only_once(pace: Pace) -> None:
    asked, searched, told = outcome(pace, "asked"), outcome(pace, "searched ahead"), outcome(pace, "told ahead")
    assert (asked.rounds, asked.searches) == (2, 1)
    assert (searched.rounds, told.rounds) == (2, 1)
    assert asked.gap_ms - searched.gap_ms >= SEARCH_S * 1000 // 20 * 20
    assert searched.gap_ms - told.gap_ms >= 28 / pace.write * 1000
