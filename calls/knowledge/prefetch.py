"""Knowledge prefetch: searches an agent's documents while the caller is still speaking, so that the response does not
wait for the search."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

import structlog

from calls.knowledge.search import KnowledgeSearch
from storage.database.errors import StorageUnavailable
from storage.document_reader.terms.ranking import parse_query
from storage.document_reader.terms.stop_words import stop_terms
from storage.document_reader.terms.tokenizer import ENGLISH
from storage.knowledge.passages import FoundPassage

MAX_PASSAGES: Final = 4
"""Results of a search at most; about 200 words each."""
CONCURRENT_SEARCHES: Final = 1
"""Concurrent prefetches of all calls, so that they take at most one core and do not delay the searches of responses."""
PAUSE_FACTOR: Final = 4.0
"""Ratio of a call's pause after a prefetch to the duration of that, because searches are slow with many passages or on
a busy machine."""
RETRY_S: Final = 0.03
"""A call that got no slot tries again after this time."""
PREFETCH_S: Final = 10.0
"""How long the answer to a written turn waits for the passages that a search finds."""
MIN_OVERLAP: Final = 0.75
"""Minimum Jaccard index of the terms of two questions that share results."""
_CACHED_SEARCHES: Final = 4
"""Cached searches, because the transcript grows, and a model asks in its own words."""
_MAX_AGE_S: Final = 30.0
"""Age up to which a result is used, because documents change."""

log = structlog.get_logger()


@dataclass(frozen=True)
class _Search:
    """A search that is under way or done, and its distinct terms."""

    terms: frozenset[str]
    task: asyncio.Task[list[FoundPassage]]
    begun_s: float

    def results(self) -> list[FoundPassage] | None:
        """Returns its results; None while it is under way, and if it failed."""
        search = self.task
        return search.result() if search.done() and not (search.cancelled() or search.exception()) else None


class KnowledgePrefetch:
    """The prefetch of one call, on the event loop: one search at a time, for the newest words."""

    _running: ClassVar[int] = 0

    def __init__(
        self, knowledge: KnowledgeSearch, agent_id: str, *, language: str = ENGLISH, enabled: bool = True
    ) -> None:
        """`language` as `tokenizer.language_of` returns it. Not `enabled`: nothing is worth a search before it is asked
        for."""
        self._language = language
        self._knowledge = knowledge
        self._agent_id = agent_id
        self._enabled = enabled
        self._searches: deque[_Search] = deque(maxlen=_CACHED_SEARCHES)
        self._pending_text: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.on_results: Callable[[], None] = lambda: None
        """Called when a prefetch has found something."""

    def on_partial_transcript(self, text: str) -> None:
        """Takes the transcript of the turn so far; returns at once."""
        if not self._enabled:
            return
        self._pending_text = text
        self._start_search()

    async def prefetch(self, text: str) -> None:
        """Search for a complete turn that was not spoken, so that `cached` has the results; wait `PREFETCH_S` for them
        at most. A failure is logged."""
        terms = self._terms(text)
        if not self._enabled or terms <= stop_terms(self._language):
            return
        search = asyncio.create_task(self._knowledge.search(self._agent_id, text, MAX_PASSAGES))
        self._searches.append(_Search(terms, search, asyncio.get_running_loop().time()))
        search.add_done_callback(self._log_failure)
        await asyncio.wait((search,), timeout=PREFETCH_S)

    def cached(self, text: str) -> list[FoundPassage]:
        """Returns the results of a prefetch for a similar question, the best first, without waiting."""
        search = self._nearest(text, [each for each in self._recent_searches() if each.results() is not None])
        return (search.results() if search else None) or []

    async def search(self, text: str) -> list[FoundPassage]:
        """Returns the best passages, the best first: those of a prefetch for a similar question, else those of a new
        search. Raises `StorageUnavailable`."""
        search = self._nearest(text, self._recent_searches())
        if search is not None:
            await asyncio.wait((search.task,))
            found = search.results()
            if found is not None:
                return found
        return await self._knowledge.search(self._agent_id, text, MAX_PASSAGES)

    def close(self) -> None:
        """Cancel all searches. Idempotent."""
        self._enabled = False
        if self._timer is not None:
            self._timer.cancel()
        for search in self._searches:
            search.task.cancel()

    def _start_search(self) -> None:
        """Search for the newest words if their terms are new: now, or as soon as a slot is free."""
        is_searching = bool(self._searches) and not self._searches[-1].task.done()
        if self._pending_text is None or is_searching or self._timer is not None or not self._enabled:
            return
        if KnowledgePrefetch._running >= CONCURRENT_SEARCHES:
            self._retry_in(RETRY_S)
            return
        text, self._pending_text = self._pending_text, None
        terms = self._terms(text)
        if terms <= stop_terms(self._language) or any(search.terms == terms for search in self._recent_searches()):
            return
        KnowledgePrefetch._running += 1
        search = asyncio.create_task(self._knowledge.search(self._agent_id, text, MAX_PASSAGES))
        self._searches.append(_Search(terms, search, asyncio.get_running_loop().time()))
        search.add_done_callback(self._search_done)

    def _search_done(self, search: asyncio.Task[list[FoundPassage]]) -> None:
        """Log a failure only, because it occurs again in the search of the response, and is handled there."""
        KnowledgePrefetch._running -= 1
        if not self._log_failure(search) and not search.cancelled() and search.result():
            self.on_results()
        if self._enabled:
            self._retry_in(PAUSE_FACTOR * (asyncio.get_running_loop().time() - self._searches[-1].begun_s))

    def _log_failure(self, search: asyncio.Task[list[FoundPassage]]) -> bool:
        """Returns True if the search has failed."""
        error = None if search.cancelled() else search.exception()
        if isinstance(error, StorageUnavailable):
            log.info(
                "knowledge_prefetch.failed",
                agent_id=self._agent_id,
                cause=error.cause,
                deprecated_event="lookup.failed",
            )
        elif error is not None:
            log.error(
                "knowledge_prefetch.error",
                agent_id=self._agent_id,
                error=repr(error),
                exc_info=error,
                deprecated_event="lookup.broken",
            )
        return error is not None

    def _retry_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._start_search()

    def _recent_searches(self) -> list[_Search]:
        not_before_s = asyncio.get_running_loop().time() - _MAX_AGE_S
        return [search for search in self._searches if search.begun_s >= not_before_s]

    def _terms(self, text: str) -> frozenset[str]:
        query = parse_query(text, self._language)
        return frozenset(query.terms) if query else frozenset()

    def _nearest(self, text: str, searches: Iterable[_Search]) -> _Search | None:
        """Returns the most similar of these searches, if any has `MIN_OVERLAP`."""
        terms = self._terms(text)
        overlaps = [(len(terms & search.terms) / len(terms | search.terms), search) for search in searches]
        overlap, search = max(overlaps, key=lambda each: each[0], default=(0.0, None))
        return search if overlap >= MIN_OVERLAP else None
