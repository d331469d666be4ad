"""Knowledge injection (RAG): puts the passages about the caller's words into the language model's context, so that it
need not search for them first."""

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
"""A passage is injected from this score on."""
MIN_SCORE_BY_MEANING: Final = 0.6
"""The same for scores with a part for meaning, because texts on similar matters score higher by it than by keywords."""
MAX_PASSAGES: Final = 2
"""The most passages to inject: without a GPU, a model takes seconds to read them, which it has while the caller
speaks."""
SECOND_PASSAGE_RATIO: Final = 0.8
"""A second passage is injected if it has this share of the best score."""
MAX_CHARACTERS: Final = 8_000
"""Of all passages together."""


class KnowledgeInjector:
    """The injector of one call. `prefetch` None: there are no documents."""

    def __init__(self, prefetch: KnowledgePrefetch | None) -> None:
        self._prefetch = prefetch
        self._chosen: tuple[str, list[FoundPassage]] = ("", [])
        self._known: set[tuple[str, int]] = set()
        self._cited: list[CitedPassage] = []
        self._uses = 0

    def context_for(self, text: str) -> list[ToolUse]:
        """Returns what precedes these words of the caller, as a tool call: nothing if no relevant passage was found
        yet. The same text gets the same passages until `commit`."""
        return self._as_tool_use(self._choose(text))

    def refreshed_context_for(self, text: str) -> list[ToolUse]:
        """`context_for`, chosen anew: the search has found something, and no response has the old passages yet."""
        self._chosen = ("", [])
        return self.context_for(text)

    def commit(self, text: str) -> list[ToolUse]:
        """`context_for` words that the caller has said: the passages are in the conversation from now on."""
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
        """These passages are in the conversation: they are not injected again."""
        self._known.update((source.document_id, source.position) for source in sources)

    def take_cited(self) -> list[CitedPassage]:
        """Returns the passages injected since the last call of this: the response being made cites them."""
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
        # The same for the same passages: what the model has read ahead does not change with the caller's next word.
        query = ", ".join(dict.fromkeys(found.document for found in chosen))
        call = ToolCall(
            f"recalled_{self._uses + 1}", SEARCH_KNOWLEDGE, json.dumps({"query": query}, ensure_ascii=False)
        )
        return [ToolUse(call, passages_as_text(chosen))]


def passages_as_text(found: Sequence[FoundPassage]) -> str:
    """Passages as a language model gets them, each with its document's name."""
    return "\n\n".join(f"From the document {each.document}:\n{each.content}" for each in found)[:MAX_CHARACTERS]


def cited_passage(found: FoundPassage) -> CitedPassage:
    """A passage as the timeline stores it."""
    return CitedPassage(found.document_id, found.document, found.position, round(found.score, 4))


def _is_relevant(found: FoundPassage) -> bool:
    return found.score >= (MIN_SCORE_BY_MEANING if found.by_vector else MIN_SCORE)


def _passage_key(found: FoundPassage) -> tuple[str, int]:
    return found.document_id, found.position
