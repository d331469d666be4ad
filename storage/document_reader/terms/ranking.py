"""Questions to the index of terms, and how well a passage answers one.

The index is a table of SQLite's FTS5 with the columns `agent` and `terms`. It finds candidates; the score is ours, from
numbers of the agent's own passages alone: FTS5's bm25() counts all rows of the table, so that one organization's
documents would change, and tell of, another's scores, and it is nearly 0 where there are few rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from storage.document_reader.terms.stop_words import stop_terms
from storage.document_reader.terms.tokenizer import ENGLISH, terms_of

LONGEST: Final = 2_000
"""Characters of a question that count: the first ones. To look at more of them takes too long."""
MOST_TERMS: Final = 32
"""Terms of a question that count: the first ones."""
_MOST_CANDIDATES: Final = 1_000
"""Passages that SQLite is asked to rank, but for those of the rarest term: 3 ms."""
_K: Final = 0.6
"""How slowly repeats of a term add up: said once in a passage that is not short, it gets 1 / (1 + _K) of its weight."""
_B: Final = 0.5
"""How much it counts for a passage to be short."""
_USUAL_TERMS: Final = 200
"""Terms from which a passage is no longer short."""


@dataclass(frozen=True)
class TermQuery:
    """What to look for: distinct terms in the order of the question, at least one."""

    terms: tuple[str, ...]

    def match_one(self, agent_id: str, term: str) -> str:
        """The FTS5 expression for an agent's passages with one of the terms: their number is what the others ask for
        as `holders`."""
        return _match(agent_id, (term,))

    def match(self, agent_id: str, holders: Mapping[str, int]) -> str | None:
        """The FTS5 expression for an agent's passages that may answer: all with any of the terms, but when they are too
        many to look at, those with the rarest terms. None when no passage holds any."""
        chosen: list[str] = []
        candidates = 0
        for term in sorted(filter(holders.get, self.terms), key=holders.__getitem__):
            candidates += holders[term]
            if chosen and candidates > _MOST_CANDIDATES:
                break
            chosen.append(term)
        return _match(agent_id, chosen) if chosen else None

    def score(self, terms: str, holders: Mapping[str, int], passages: int) -> float:
        """How well a passage with these terms answers, 0..1: BM25 (Robertson and Zaragoza, 2009) as a share of the most
        that the question can reach. In words: the share of the question's terms, the rare ones weighing more, that the
        passage holds, a term counting the fuller the more often it is there. `holders` says how many of the agent's
        `passages` hold each term. A term that none of them holds counts against every passage."""
        there = Counter(terms.split(" "))
        length = 1 - _B + _B * min(1.0, there.total() / _USUAL_TERMS)
        reached = possible = 0.0
        for term in self.terms:
            held = min(holders.get(term, 0), passages)
            weight = math.log1p((passages - held + 0.5) / (held + 0.5))
            possible += weight
            count = there[term]
            reached += weight * count / (count + _K * length)
        return reached / possible


def parse_query(text: str, language: str = ENGLISH) -> TermQuery | None:
    """What anybody's words ask for in texts of a language (`words.language_of`); words without a subject are left out
    unless there are no others. None when there is nothing to look for."""
    said = list(dict.fromkeys(terms_of(text[:LONGEST], language, asked=True)))
    telling = [term for term in said if term not in stop_terms(language)]
    terms = tuple((telling or said)[:MOST_TERMS])
    return TermQuery(terms) if terms else None


def _match(agent_id: str, terms: Sequence[str]) -> str:
    """Terms hold letters and digits only; quoted, even `or` and `near` are nothing but words (FTS5, section 3)."""
    any_term = " OR ".join(f'"{term}"' for term in terms)
    return f'agent : "{agent_id}" AND terms : ({any_term})'
