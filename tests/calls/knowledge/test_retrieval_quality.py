"""Retrieval quality for questions in other words than the passage's does not get worse; the whole table is printed by
`python -m bench.knowledge.retrieval quality`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.knowledge.questions import handbooks
from bench.knowledge.retrieval import (
    KnowledgeBases,
    SimulatedEmbeddings,
    index_vectors,
    open_knowledge_bases,
    rank_metrics,
    search_ranks,
)
from calls.knowledge import vector_search
from calls.knowledge.vector_search import VectorSearch

HANDBOOKS = handbooks()
QUESTIONS = [question for handbook in HANDBOOKS for question in handbook.questions]
SOME = [question for question in QUESTIONS if question.language == "en"][::5]


@pytest.fixture
async def knowledge_bases(tmp_path: Path) -> AsyncIterator[KnowledgeBases]:
    async with open_knowledge_bases(
        tmp_path, [handbook for handbook in HANDBOOKS if handbook.language == "en"], ["en"]
    ) as knowledge_bases:
        yield knowledge_bases


def test_every_question_belongs_to_a_passage() -> None:
    headings = {line for handbook in HANDBOOKS for line in handbook.markdown.splitlines() if line.startswith("## ")}
    assert len(QUESTIONS) >= 200
    assert {f"## {question.passage.partition(' > ')[2]}" for question in QUESTIONS} == headings
    assert len({question.text for question in QUESTIONS}) == len(QUESTIONS)


async def test_keywords_and_vectors_together_find_more_than_keywords(
    knowledge_bases: KnowledgeBases, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wait in ("EMBED_TIMEOUT_S", "READ_TIMEOUT_S"):
        monkeypatch.setattr(vector_search, wait, 20.0)
    by_keywords = rank_metrics("", await search_ranks(knowledge_bases, SOME, None))
    model = SimulatedEmbeddings(0.3, QUESTIONS)
    await index_vectors(knowledge_bases, search := VectorSearch(knowledge_bases.database, model, scale=model.scale))
    by_both = rank_metrics("", await search_ranks(knowledge_bases, SOME, search))
    assert by_keywords["recall@5"] >= 0.2
    assert by_both["recall@5"] >= 0.8
    assert by_both["MRR"] >= 0.7
