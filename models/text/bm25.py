"""BM25 search for the sentence that fits a question best, over light stems, tolerant of misheard words.

BM25: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009, with k1 = 1.2 and b = 0.5 (short texts).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from models.text.word_lists import words as listed

_K1: Final = 1.2
_B: Final = 0.5
_SIMILAR: Final = 0.55
"""Share of common character trigrams (Dice) from which a word may stand for another one."""
_IMPLIED_WEIGHT: Final = 0.6
"""What a word counts that the question only implies ("where": address)."""
_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
STOP_WORDS: Final = listed(
    """
    a about all also am an and any are as at be been but by can could did do does for from get give got
    had has have he hello hey hi how i i'd i'm if in is it it's its just like many may me might much my no not of
    oh okay on or our please really she should so some sure tell that that's the their them there these
    they this to uh um us very want was we well were what what's when where where's which who who's why will
    with would yeah yes you your know
    """
)
_IMPLIED: Final[dict[str, str]] = {
    "where": "address located location street road floor building",
    "when": "hours open opens from until daily monday",
    "who": "name owner manager",
    "how much": "cost costs price prices fee dollars euros free",
    "cost": "price prices fee dollars euros free costs",
    "expensive": "price prices cost costs dollars",
    "price": "cost costs fee dollars euros",
    "pay": "payment cards cash card",
    "open": "hours opening closed",
    "close": "hours closed open",
    "hours": "open opening closed",
    "time": "hours open from until",
    "located": "address street location",
    "address": "located street",
    "reach": "phone number email call telephone",
    "contact": "phone number email call",
    "park": "parking garage car",
    "car": "parking garage",
    "dog": "pets dogs animals",
    "cat": "pets animals",
    "weekend": "saturday sunday",
    "saturday": "weekend saturdays",
    "sunday": "weekend sundays",
    "cancel": "cancellation",
    "book": "booking appointment reservation reserve",
    "services": "offer offers provide",
}


def tokens(text: str) -> list[str]:
    """Lower-case words, apostrophes kept."""
    return _WORD.findall(text.lower().replace("\u2019", "'"))


def stem(word: str) -> str:
    """A light English stem: plurals and the commonest endings go; what is left need not be a word."""
    word = word.removesuffix("'s")
    for suffix, least in (("ies", 4), ("ing", 6), ("ed", 5), ("ly", 5), ("es", 5), ("s", 4), ("e", 4), ("y", 4)):
        if word.endswith(suffix) and len(word) >= least and not word.endswith("ss"):
            word = word[: -len(suffix)]
            return word[:-1] if len(word) > 3 and word[-1] == word[-2] and suffix in ("ing", "ed") else word
    return word


@dataclass(frozen=True)
class Match:
    """A text's index, its score, how sure the best word of it was (1: heard as it is written), and what each word of
    the question counts that is in it (0..1)."""

    index: int
    score: float
    certainty: float
    words: Mapping[str, float]

    @property
    def weight(self) -> float:
        """How many of the question's words are in it, less for those that were misheard or are only implied."""
        return sum(self.words.values())


class Bm25Index:
    """Texts that can be asked. Building takes about 20 microseconds a word; asking well under a millisecond."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(stem(word) for word in tokens(text) if word not in STOP_WORDS) for text in texts]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean = max(1.0, sum(self._lengths) / max(1, len(texts)))
        self._holders: dict[str, list[int]] = defaultdict(list)
        for index, counts in enumerate(self._counts):
            for term in counts:
                self._holders[term].append(index)
        self._by_trigram: dict[str, list[str]] = defaultdict(list)
        for term in self._holders:
            for trigram in _trigrams(term):
                self._by_trigram[trigram].append(term)

    def search(self, question: str) -> list[Match]:
        """The texts that share something with the question, the best first; ties by their order."""
        scores: dict[int, float] = defaultdict(float)
        words: dict[int, dict[str, float]] = defaultdict(dict)
        for term, (weight, word) in self._terms(question).items():
            for index in self._holders.get(term, ()):
                scores[index] += weight * self._bm25(term, index)
                words[index][word] = max(weight, words[index].get(word, 0.0))
        found = [Match(index, score, max(words[index].values()), words[index]) for index, score in scores.items()]
        return sorted(found, key=lambda match: (-match.score, match.index))

    def _terms(self, question: str) -> dict[str, tuple[float, str]]:
        """Indexed terms that the question asks for, their weight 0..1, and the word that asks for them."""
        weights: dict[str, tuple[float, str]] = {}
        asked = tokens(question)
        for word in (*asked, *map(" ".join, pairwise(asked))):
            if word not in STOP_WORDS and " " not in word:
                term, similarity = self._nearest(stem(word))
                if similarity:
                    weights[term] = max((similarity, word), weights.get(term, (0.0, "")))
            for implied in _IMPLIED.get(word, "").split():
                if stem(implied) in self._holders:
                    weights.setdefault(stem(implied), (_IMPLIED_WEIGHT, word))
        return weights

    def _nearest(self, term: str) -> tuple[str, float]:
        """The indexed term that is this one or looks most like it, and how much; 0 for none."""
        if term in self._holders:
            return term, 1.0
        own = _trigrams(term)
        shared = Counter(other for trigram in own for other in self._by_trigram.get(trigram, ()))
        best, similarity = "", 0.0
        for other, common in shared.items():
            dice = 2 * common / (len(own) + len(_trigrams(other)))
            if (dice, other) > (similarity, best):
                best, similarity = other, dice
        return (best, similarity) if similarity >= _SIMILAR else ("", 0.0)

    def _bm25(self, term: str, index: int) -> float:
        count = self._counts[index][term]
        holders = len(self._holders[term])
        rarity = math.log(1 + (len(self._counts) - holders + 0.5) / (holders + 0.5))
        length = 1 - _B + _B * self._lengths[index] / self._mean
        return rarity * count * (_K1 + 1) / (count + _K1 * length)


def _trigrams(word: str) -> set[str]:
    padded = f"^{word}$"
    return {padded[start : start + 3] for start in range(len(padded) - 2)}
