"""Knowledge injection (RAG): puts the passages about the caller's words into the language model's context, so that it
need not call the search first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from calls.call_record.timeline import CitedPassage
from calls.call_record.transcript import ToolUse
from calls.knowledge.prefetch import KnowledgePrefetch
from models.protocols import SEARCH_KNOWLEDGE, ToolCall
from storage.knowledge.passages import FoundPassage

MIN_SCORE: Final = 0.45
"""Minimum score of an injected passage that was found by keywords alone."""
MIN_HYBRID_SCORE: Final = 0.6
"""The same with a similarity by vectors, because texts on similar matters have a higher score by it than by
keywords."""
MAX_PASSAGES: Final = 2
"""Passages to inject at most: without a GPU, a model takes seconds to read them, which it has while the caller
speaks."""
SECOND_PASSAGE_RATIO: Final = 0.8
"""Minimum share of the best score for a second passage."""
MAX_CHARACTERS: Final = 8_000
"""Characters of all passages together."""
PassageKey = tuple[str, int]
"""A document's id, and the number of a passage in it."""


class KnowledgeInjector:
    """The injector of one call. `prefetch` None: no passages are injected."""

    def __init__(self, prefetch: KnowledgePrefetch | None) -> None:
        self._prefetch = prefetch
        self._chosen: tuple[str, list[FoundPassage]] = ("", [])
        self._known: set[PassageKey] = set()
        self._cited: list[CitedPassage] = []
        self._uses = 0

    def context_for(self, text: str) -> list[ToolUse]:
        """Returns the passages for these words of the caller, as a tool call that precedes them; empty if no relevant
        passage was found yet. The same text gets the same passages until `commit`."""
        return self._as_tool_use(self._choose(text))

    def refreshed_context_for(self, text: str) -> list[ToolUse]:
        """Returns `context_for`, chosen anew: for new search results, before a response has the old passages."""
        self._chosen = ("", [])
        return self.context_for(text)

    def commit(self, text: str) -> list[ToolUse]:
        """Returns `context_for` a completed turn of the caller: the passages are in the conversation from now on."""
        chosen = self._choose(text)
        uses = self._as_tool_use(chosen)
        self._chosen = ("", [])
        if uses:
            self._uses += 1
            sources = [cited_passage(found) for found in chosen]
            self._cited += sources
            self.mark_known(sources)
        return uses

    def mark_known(self, sources: Sequence[CitedPassage]) -> None:
        """Do not inject these passages again, because they are in the conversation."""
        self._known.update((source.document_id, source.position) for source in sources)

    @property
    def known(self) -> frozenset[PassageKey]:
        """The passages that are not injected again."""
        return frozenset(self._known)

    def reset(self, known: frozenset[PassageKey]) -> None:
        """Only these passages are in the conversation, because what came later was dropped from it."""
        self._known = set(known)
        self._chosen, self._cited = ("", []), []

    def pop_cited(self) -> list[CitedPassage]:
        """Returns the passages injected since the last call of this method, which the next response cites."""
        cited, self._cited = self._cited, []
        return cited

    def _choose(self, text: str) -> list[FoundPassage]:
        if self._prefetch is None:
            return []
        if self._chosen[0] != text:
            found = [
                each
                for each in self._prefetch.cached(text)
                if _is_relevant(each) and _passage_key(each) not in self._known
            ]
            self._chosen = (
                text,
                [each for each in found[:MAX_PASSAGES] if each.score >= SECOND_PASSAGE_RATIO * found[0].score],
            )
        return self._chosen[1]

    def _as_tool_use(self, chosen: Sequence[FoundPassage]) -> list[ToolUse]:
        if not chosen:
            return []
        # The same for the same passages, so that a prefilled prompt does not change with the caller's next word.
        query = ", ".join(dict.fromkeys(found.document for found in chosen))
        call = ToolCall(
            f"recalled_{self._uses + 1}", SEARCH_KNOWLEDGE, json.dumps({"query": query}, ensure_ascii=False)
        )
        return [ToolUse(call, passages_as_text(chosen))]


def passages_as_text(found: Sequence[FoundPassage]) -> str:
    """Returns passages as text for a language model, each with its document's name."""
    return "\n\n".join(f"From the document {each.document}:\n{each.content}" for each in found)[:MAX_CHARACTERS]


def cited_passage(found: FoundPassage) -> CitedPassage:
    """Returns a passage as the timeline stores it."""
    return CitedPassage(found.document_id, found.document, found.position, round(found.score, 4))


def _is_relevant(found: FoundPassage) -> bool:
    return found.score >= (MIN_HYBRID_SCORE if found.by_vector else MIN_SCORE)


def _passage_key(found: FoundPassage) -> PassageKey:
    return found.document_id, found.position
