"""Knowledge search: the search of an agent's documents that the API, the tool of calls and the prefetch share."""

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
MEANING_WEIGHT: Final = 0.8
"""The highest score that each part can give alone: see `combined_score`."""


T = TypeVar("T")


class ReadTransaction(Protocol):
    """A read transaction; see `Database.read`."""

    def __call__(self, work: Callable[[sa.Connection], T], /) -> Awaitable[T]:
        """Returns what the work returns."""


class KnowledgeSearch:
    """Searches passages by keywords and, with an embeddings model, by meaning."""

    def __init__(self, database: Database, vectors: VectorSearch | None = None) -> None:
        self._database = database
        self._vectors = vectors

    async def search(self, agent_id: str, text: str, most: int, *, owner: str | None = None) -> list[FoundPassage]:
        """Returns the passages of the agent's ready documents that answer best, the best first; `text` is untrusted.
        `owner` is the owner of the database reads (`Database.read`), by default the agent. Raises
        `StorageUnavailable`."""
        read = partial(self._database.read, owner=owner or agent_id)
        keywords = asyncio.ensure_future(read(partial(KeywordSearch, agent_id=agent_id, text=text)))
        if self._vectors is None:
            return _best(await self._by_words(keywords, read), most)
        by_meaning = self._by_meaning(self._vectors, keywords, read, agent_id, text)
        found, (similarities, nearest) = await asyncio.gather(self._by_words(keywords, read), by_meaning)
        return _best(found if similarities is None else _with_similarities({**nearest, **found}, similarities), most)

    async def _by_words(
        self, keywords: asyncio.Future[KeywordSearch], read: ReadTransaction
    ) -> dict[int, FoundPassage]:
        return await read((await keywords).best)

    async def _by_meaning(
        self,
        vectors: VectorSearch,
        keywords: asyncio.Future[KeywordSearch],
        read: ReadTransaction,
        agent_id: str,
        text: str,
    ) -> tuple[Similarities | None, dict[int, FoundPassage]]:
        """Returns the similarities of passages, None if not known, and the nearest passages."""
        similarities = await vectors.similarities(agent_id, text)
        keyword_search = await keywords
        if similarities is None or not similarities.nearest:
            return similarities, {}
        return similarities, await read(partial(keyword_search.score, passages=similarities.nearest))


def combined_score(keywords: float, meaning: float) -> float:
    """One score of two, 0..1: each is the probability that the passage answers, and both can miss. A passage found by
    both is better than one found by either alone; nothing else of the question or of other passages counts, so that
    scores of different questions can be compared."""
    return 1 - (1 - KEYWORD_WEIGHT * keywords) * (1 - MEANING_WEIGHT * meaning)


def _with_similarities(found: Mapping[int, FoundPassage], similarities: Similarities) -> dict[int, FoundPassage]:
    by_passage = similarities.of(list(found))
    return {
        number: replace(
            each, score=combined_score(each.score, by_passage.get(number, 0.0)), by_vector=number in by_passage
        )
        for number, each in found.items()
    }


def _best(found: Mapping[int, FoundPassage], most: int) -> list[FoundPassage]:
    return sorted(found.values(), key=lambda each: -each.score)[:most]
