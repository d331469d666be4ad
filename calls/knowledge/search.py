"""Knowledge search in an agent's documents, for the API, the search tool and the prefetch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeVar

import sqlalchemy as sa

from calls.knowledge.vector_search import Similarities, VectorSearch
from storage.database.database import Database
from storage.knowledge.passages import FoundPassage, KeywordSearch

KEYWORD_WEIGHT: Final = 0.8
VECTOR_WEIGHT: Final = 0.8
"""The maximum score by keywords or by vectors alone: see `combined_score`."""


T = TypeVar("T")


class ReadTransaction(Protocol):
    """A read transaction; see `Database.read`."""

    def __call__(self, work: Callable[[sa.Connection], T], /) -> Awaitable[T]:
        """Returns the result of the work."""


class KnowledgeSearch:
    """Searches passages by keywords and, with an embeddings model, by vectors (hybrid search)."""

    def __init__(self, database: Database, vectors: VectorSearch | None = None) -> None:
        self._database = database
        self._vectors = vectors

    async def search(self, agent_id: str, text: str, limit: int, *, owner: str | None = None) -> list[FoundPassage]:
        """Returns the best passages of the agent's ready documents, the best first; `text` is untrusted. `owner` is the
        owner of the database reads (`Database.read`), by default the agent. Raises `StorageUnavailable`."""
        read = partial(self._database.read, owner=owner or agent_id)
        keywords = asyncio.ensure_future(read(partial(KeywordSearch, agent_id=agent_id, text=text)))
        if self._vectors is None:
            return _best(await self._by_keywords(keywords, read), limit)
        by_vectors = self._by_vectors(self._vectors, keywords, read, agent_id, text)
        found, (similarities, nearest) = await asyncio.gather(self._by_keywords(keywords, read), by_vectors)
        if similarities is None:
            return _best(found, limit)
        found = {**nearest, **found}
        return _best(_with_similarities(found, await similarities.of_passages(list(found))), limit)

    async def _by_keywords(
        self, keywords: asyncio.Future[KeywordSearch], read: ReadTransaction
    ) -> dict[int, FoundPassage]:
        return await read((await keywords).best)

    async def _by_vectors(
        self,
        vectors: VectorSearch,
        keywords: asyncio.Future[KeywordSearch],
        read: ReadTransaction,
        agent_id: str,
        text: str,
    ) -> tuple[Similarities | None, dict[int, FoundPassage]]:
        """Returns the similarities of passages, None if they are not known, and the nearest passages."""
        similarities = await vectors.similarities(agent_id, text)
        keyword_search = await keywords
        if similarities is None or not similarities.nearest:
            return similarities, {}
        return similarities, await read(partial(keyword_search.score, passages=similarities.nearest))


def combined_score(keywords: float, meaning: float) -> float:
    """Returns one score of two, 0..1: each is the probability that the passage answers, and both can miss (noisy-or). A
    passage found by both is better than one found by either alone; nothing else of the question or of other passages
    counts, so that scores of different questions can be compared."""
    return 1 - (1 - KEYWORD_WEIGHT * keywords) * (1 - VECTOR_WEIGHT * meaning)


def _with_similarities(found: Mapping[int, FoundPassage], by_passage: Mapping[int, float]) -> dict[int, FoundPassage]:
    return {
        number: replace(
            each,
            score=combined_score(each.score, by_passage.get(number, 0.0)),
            by_vector=number in by_passage,
            by_meaning=by_passage.get(number, 0.0),
        )
        for number, each in found.items()
    }


def _best(found: Mapping[int, FoundPassage], limit: int) -> list[FoundPassage]:
    return sorted(found.values(), key=lambda each: -each.score)[:limit]
