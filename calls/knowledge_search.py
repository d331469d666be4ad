"""Searches the documents of an agent: the one way that the API, the tool of calls and what is looked up ahead go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import sqlalchemy as sa

from calls.knowledge_meanings import KnowledgeMeanings, Meanings
from storage.database import Database
from storage.knowledge_index import Found, Words

WORDS_WEIGHT: Final = 0.8
MEANING_WEIGHT: Final = 0.8
"""How sure each alone can make: see `joined`."""


class KnowledgeSearch:
    """Searches passages by their words, and, with a model, by what they mean."""

    def __init__(self, database: Database, meanings: KnowledgeMeanings | None = None) -> None:
        self._database = database
        self._meanings = meanings

    async def search(self, agent_id: str, text: str, most: int) -> list[Found]:
        """The passages of the agent's ready documents that answer best, the best first; `text` is anybody's words.
        Raises `StorageTrouble`."""
        by_words = self._database.read(partial(_by_words, agent_id=agent_id, text=text))
        if self._meanings is None:
            return _best((await by_words).found, most)
        asked, meanings = await asyncio.gather(by_words, self._meanings.of(agent_id, text))
        if meanings is None:
            return _best(asked.found, most)
        missing = meanings.near.keys() - asked.found.keys()
        more = await self._database.read(partial(asked.words.those, passages=missing)) if missing else {}
        return _best(_together({**asked.found, **more}, meanings), most)


@dataclass(frozen=True)
class _ByWords:
    """A question, and what has its words."""

    words: Words
    found: Mapping[int, Found]


def _by_words(conn: sa.Connection, agent_id: str, text: str) -> _ByWords:
    words = Words(conn, agent_id, text)
    return _ByWords(words, words.best(conn))


def joined(words: float, meaning: float) -> float:
    """One score of two, 0..1: each is a chance that the passage answers, and both can miss. What is found by both is
    better than what is found by one, however well; nothing else of the question or of other passages plays a part, so
    that scores of different questions can be compared."""
    return 1 - (1 - WORDS_WEIGHT * words) * (1 - MEANING_WEIGHT * meaning)


def _together(found: Mapping[int, Found], meanings: Meanings) -> dict[int, Found]:
    near = meanings.of(list(found))
    return {
        number: replace(each, score=joined(each.score, near.get(number, 0.0)), by_meaning=number in near)
        for number, each in found.items()
    }


def _best(found: Mapping[int, Found], most: int) -> list[Found]:
    return sorted(found.values(), key=lambda each: -each.score)[:most]
