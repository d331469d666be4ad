"""Answers to questions in other words than the text's are found as well as they were; the whole table is
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
    ranked,
    searched,
    with_knowledge_bases,
)
from calls.knowledge import vector_search
from calls.knowledge.vector_search import VectorSearch

TEXTS = handbooks()
QUESTIONS = [question for text in TEXTS for question in text.questions]
SOME = [question for question in QUESTIONS if question.language == "en"][::5]


@pytest.fixture
async def knowledge_bases(tmp_path: Path) -> AsyncIterator[KnowledgeBases]:
    async with with_knowledge_bases(
        tmp_path, [text for text in TEXTS if text.language == "en"], ["en"]
    ) as knowledge_bases:
        yield knowledge_bases


def test_every_question_belongs_to_a_passage() -> None:
    headings = {line for text in TEXTS for line in text.markdown.splitlines() if line.startswith("## ")}
    assert len(QUESTIONS) >= 200
    assert {f"## {question.passage.partition(' > ')[2]}" for question in QUESTIONS} == headings
    assert len({question.text for question in QUESTIONS}) == len(QUESTIONS)


async def test_words_and_vectors_together_find_more_than_words(
    knowledge_bases: KnowledgeBases, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wait in ("EMBED_TIMEOUT_S", "READ_TIMEOUT_S"):
        monkeypatch.setattr(vector_search, wait, 20.0)
    by_words = ranked("", await searched(knowledge_bases, SOME, None))
    model = SimulatedEmbeddings(0.3, QUESTIONS)
    await index_vectors(knowledge_bases, meanings := VectorSearch(knowledge_bases.database, model, scale=model.scale))
    by_both = ranked("", await searched(knowledge_bases, SOME, meanings))
    assert by_words["recall@5"] >= 0.2
    assert by_both["recall@5"] >= 0.8
    assert by_both["MRR"] >= 0.7
