"""Looks into an agent's documents while the caller is still speaking, so that the answer need not wait for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

import structlog

from calls.knowledge.search import KnowledgeSearch
from storage.database.database import StorageUnavailable
from storage.document_reader.terms.ranking import parse_query
from storage.document_reader.terms.stop_words import stop_terms
from storage.document_reader.terms.tokenizer import ENGLISH
from storage.knowledge.passages import FoundPassage

PASSAGES: Final = 4
"""That a search gives at most; about 200 words each."""
AT_ONCE: Final = 1
"""Searches ahead in all calls together: they keep no answer from its own, and take no more than a core."""
PAUSE: Final = 4.0
"""After a search ahead its call makes none for so many times as long: it is dear with many passages, or on a busy
machine."""
BUSY_S: Final = 0.03
"""Then a call whose turn it was not tries again."""
NEARLY: Final = 0.75
"""Two questions are nearly the same when they share so much of the words that either of them has."""
_KEPT: Final = 4
"""Of what was looked up ahead: the caller's words grow, and a model asks in its own."""
_FRESH_S: Final = 30.0
"""What was looked up before that may have changed."""

log = structlog.get_logger()


@dataclass(frozen=True)
class _Search:
    """What is looked up: distinct terms, and the search for them."""

    terms: frozenset[str]
    search: asyncio.Task[list[FoundPassage]]
    begun_s: float

    def found(self) -> list[FoundPassage] | None:
        """What it has found; None while it goes on, and when it came to nothing."""
        search = self.search
        return search.result() if search.done() and not (search.cancelled() or search.exception()) else None


class KnowledgePrefetch:
    """For one call, on the event loop. One search ahead at a time, for the newest words."""

    _ahead: ClassVar[int] = 0

    def __init__(
        self, knowledge: KnowledgeSearch, agent_id: str, *, language: str = ENGLISH, ahead: bool = True
    ) -> None:
        """`language` as `words.language_of` tells it. `ahead` False: there is nothing worth looking for before it is
        asked for."""
        self._language = language
        self._knowledge = knowledge
        self._agent_id = agent_id
        self._is_ahead = ahead
        self._looks: deque[_Search] = deque(maxlen=_KEPT)
        self._words: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.on_found: Callable[[], None] = lambda: None
        """Called when something was found ahead."""

    def hears(self, text: str) -> None:
        """What the caller has said of the turn so far; returns at once."""
        if not self._is_ahead:
            return
        self._words = text
        self._look()

    def found(self, text: str) -> list[FoundPassage]:
        """What was found already for nearly this question, the best first; at once."""
        look = self._look_for(text, [each for each in self._fresh() if each.found() is not None])
        return (look.found() if look else None) or []

    async def find(self, text: str) -> list[FoundPassage]:
        """The passages that answer best, the best first: those found ahead, if that was for nearly the same. Raises
        `StorageUnavailable`."""
        look = self._look_for(text, self._fresh())
        if look is not None:
            await asyncio.wait((look.search,))
            found = look.found()
            if found is not None:
                return found
        return await self._knowledge.search(self._agent_id, text, PASSAGES)

    def close(self) -> None:
        """Nobody asks any more. Idempotent."""
        self._is_ahead = False
        if self._timer is not None:
            self._timer.cancel()
        for look in self._looks:
            look.search.cancel()

    def _look(self) -> None:
        """Search for the newest words, if they ask for anything new: now, or as soon as there is room."""
        searches = bool(self._looks) and not self._looks[-1].search.done()
        if self._words is None or searches or self._timer is not None or not self._is_ahead:
            return
        if KnowledgePrefetch._ahead >= AT_ONCE:
            self._later(BUSY_S)
            return
        text, self._words = self._words, None
        terms = self._terms(text)
        if terms <= stop_terms(self._language) or any(look.terms == terms for look in self._fresh()):
            return
        KnowledgePrefetch._ahead += 1
        search = asyncio.create_task(self._knowledge.search(self._agent_id, text, PASSAGES))
        self._looks.append(_Search(terms, search, asyncio.get_running_loop().time()))
        search.add_done_callback(self._looked)

    def _looked(self, search: asyncio.Task[list[FoundPassage]]) -> None:
        """What goes wrong here goes wrong again when it is asked for, and is dealt with there."""
        KnowledgePrefetch._ahead -= 1
        error = None if search.cancelled() else search.exception()
        if isinstance(error, StorageUnavailable):
            log.info("lookup.failed", agent_id=self._agent_id, cause=error.cause)
        elif error is not None:
            log.error("lookup.broken", agent_id=self._agent_id, error=repr(error), exc_info=error)
        elif not search.cancelled() and search.result():
            self.on_found()
        if self._is_ahead:
            self._later(PAUSE * (asyncio.get_running_loop().time() - self._looks[-1].begun_s))

    def _later(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._again)

    def _again(self) -> None:
        self._timer = None
        self._look()

    def _fresh(self) -> list[_Search]:
        not_before_s = asyncio.get_running_loop().time() - _FRESH_S
        return [look for look in self._looks if look.begun_s >= not_before_s]

    def _terms(self, text: str) -> frozenset[str]:
        asked = parse_query(text, self._language)
        return frozenset(asked.terms) if asked else frozenset()

    def _look_for(self, text: str, looks: Iterable[_Search]) -> _Search | None:
        """The nearest one of these that is near enough."""
        terms = self._terms(text)
        near = [(len(terms & look.terms) / len(terms | look.terms), look) for look in looks]
        likeness, look = max(near, key=lambda each: each[0], default=(0.0, None))
        return look if likeness >= NEARLY else None
