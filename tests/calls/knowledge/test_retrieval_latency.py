"""Latency of retrieval: with a prefetch, a response from a document needs one request to the model."""

from __future__ import annotations

import pytest

from tests.calls.knowledge.retrieval_simulation import PACES, SEARCH_S, ModelSpeed, outcome


@pytest.mark.parametrize("pace", PACES, ids=[pace.name for pace in PACES])
def test_a_response_from_a_prefetched_document_needs_the_model_only_once(pace: ModelSpeed) -> None:
    asked, searched, told = outcome(pace, "asked"), outcome(pace, "searched ahead"), outcome(pace, "told ahead")
    assert (asked.rounds, asked.searches) == (2, 1)
    assert (searched.rounds, told.rounds) == (2, 1)
    assert asked.gap_ms - searched.gap_ms >= SEARCH_S * 1000 // 20 * 20
    assert searched.gap_ms - told.gap_ms >= 28 / pace.write * 1000
