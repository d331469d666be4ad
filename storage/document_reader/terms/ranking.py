"""Queries to the full-text index, and the score of a passage.

The index finds candidates. The score is computed here, from the agent's own passages only, because FTS5's bm25() counts
all rows of the table: one organization's documents would change, and reveal, another's scores, and it is nearly 0 where
there are few rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from storage.document_reader.terms.stop_words import stop_terms
from storage.document_reader.terms.tokenizer import ENGLISH, terms_of

MAX_QUERY_CHARACTERS: Final = 2_000
"""Characters of a query that are used, from its beginning."""
MAX_QUERY_TERMS: Final = 32
"""Terms of a query that are used, from its beginning."""
_MAX_CANDIDATES: Final = 1_000
"""Passages that the index ranks at most, except for those of the rarest term: 3 ms."""
_PUNCTUATION: Final = ".,;:!?¿¡\"'()[]{}<>"
_K: Final = 0.6
"""BM25's k1, saturation of repeated terms: one occurrence in a passage of usual length gives 1 / (1 + _K) of its
weight."""
_B: Final = 0.5
"""BM25's b: preference for short passages."""
_USUAL_TERMS: Final = 200
"""Terms from which on a passage counts as long."""


@dataclass(frozen=True)
class TermQuery:
    """A query: distinct terms in the order of the question, at least one. `words`: the word of the question that each
    term was made of, where it was made of one."""

    terms: tuple[str, ...]
    words: Mapping[str, str] = field(default_factory=dict, compare=False)

    def words_in(self, terms: str) -> tuple[str, ...]:
        """Returns the words of the question that a passage with these terms has."""
        there = set(terms.split(" "))
        return tuple(dict.fromkeys(self.words.get(term, term) for term in self.terms if term in there))

    def candidate_terms(self, frequencies: Mapping[str, int]) -> list[str]:
        """Returns the terms that candidates have any of: those that some passage has or, when too many passages have
        them, the rarest ones."""
        chosen: list[str] = []
        candidates = 0
        for term in sorted(filter(frequencies.get, self.terms), key=frequencies.__getitem__):
            candidates += frequencies[term]
            if chosen and candidates > _MAX_CANDIDATES:
                break
            chosen.append(term)
        return chosen

    def score(self, terms: str, frequencies: Mapping[str, int], passages: int) -> float:
        """Returns the score of a passage with these terms, 0..1: BM25 (Robertson and Zaragoza, 2009) as a share of the
        maximum for the query, that is the share of the query's terms, weighted by rarity, that the passage has, where
        repeats add to a term. `frequencies` is the number of the agent's `passages` with each term. A term in none of
        them lowers every score."""
        counts = Counter(terms.split(" "))
        length = 1 - _B + _B * min(1.0, counts.total() / _USUAL_TERMS)
        reached = possible = 0.0
        for term in self.terms:
            frequency = min(frequencies.get(term, 0), passages)
            weight = math.log1p((passages - frequency + 0.5) / (frequency + 0.5))
            possible += weight
            count = counts[term]
            reached += weight * count / (count + _K * length)
        return reached / possible


def parse_query(text: str, language: str = ENGLISH) -> TermQuery | None:
    """Returns the query of a text in a language (`tokenizer.language_of`); stop words are left out unless there are no
    others. None when no term is left."""
    distinct = list(dict.fromkeys(terms_of(text[:MAX_QUERY_CHARACTERS], language, is_query=True)))
    significant = [term for term in distinct if term not in stop_terms(language)]
    terms = tuple((significant or distinct)[:MAX_QUERY_TERMS])
    return TermQuery(terms, _words_of_terms(text, language)) if terms else None


def _words_of_terms(text: str, language: str) -> dict[str, str]:
    """Returns the first word of the text that each of its terms was made of."""
    words: dict[str, str] = {}
    for word in dict.fromkeys(text[:MAX_QUERY_CHARACTERS].split()):
        for term in terms_of(word, language, is_query=True):
            words.setdefault(term, word.strip(_PUNCTUATION))
    return words
