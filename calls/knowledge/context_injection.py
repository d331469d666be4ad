"""What an agent's documents say about the caller's words, told to the language model together with them: it need not
ask for it first."""

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
"""A passage whose words answer so well is told unasked."""
MIN_SCORE_BY_MEANING: Final = 0.6
"""The same where the score tells of meaning, too: texts about like matters have more of it than the same words."""
MAX_PASSAGES: Final = 2
"""Passages that are told unasked at most: to read them takes a model without a graphics card seconds, which it has
while the caller speaks."""
SECOND_PASSAGE_RATIO: Final = 0.8
"""A second one is told too when it answers nearly as well as the best."""
MAX_CHARACTERS: Final = 8_000
"""Characters of passages."""


class KnowledgeInjector:
    """For one call. `lookup` None: there is nothing to recall."""

    def __init__(self, prefetch: KnowledgePrefetch | None) -> None:
        self._prefetch = prefetch
        self._chosen: tuple[str, list[FoundPassage]] = ("", [])
        self._known: set[tuple[str, int]] = set()
        self._cited: list[CitedPassage] = []
        self._uses = 0

    def context_for(self, text: str) -> list[ToolUse]:
        """What goes into the talk before these words of the caller, as a search that was made: nothing when nothing was
        found yet, or nothing that is sure. The same text gets the same until `heard`."""
        return self._as_tool_use(self._choose(text))

    def refreshed_context_for(self, text: str) -> list[ToolUse]:
        """The same, decided anew: there is news of what was found, and no answer yet that has the old."""
        self._chosen = ("", [])
        return self.context_for(text)

    def commit(self, text: str) -> list[ToolUse]:
        """The same; the caller has said this, and it is told."""
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
        """These passages are in the talk: they are not told again."""
        self._known.update((source.document_id, source.position) for source in sources)

    def take_cited(self) -> list[CitedPassage]:
        """What was told unasked since this was asked last: the answer that is made now has it."""
        given, self._cited = self._cited, []
        return given

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
    """A passage as the timeline keeps it."""
    return CitedPassage(found.document_id, found.document, found.position, round(found.score, 4))


def _is_relevant(found: FoundPassage) -> bool:
    return found.score >= (MIN_SCORE_BY_MEANING if found.by_vector else MIN_SCORE)


def _passage_key(found: FoundPassage) -> tuple[str, int]:
    return found.document_id, found.position
