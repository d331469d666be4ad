"""Words to find a text by, in any language: folded, without endings; pairs of characters where words have no spaces.

Both the index and the questions are made with this, so SQLite's own rules for words do not matter: they would take a
whole Chinese clause for one word and cut Hindi and Thai words at their vowel signs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final

UNSPACED: Final = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ec0-\u0ec6\u1000-\u102a\u1780-\u17b3"
    "\u3005\u3006\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Letters of scripts without spaces between words (Thai, Lao, Burmese, Khmer, Japanese, Chinese), for a character class
of a pattern."""
SIGNS: Final = (
    "\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d"
    "\u0a70\u0a71\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3c-\u0c56"
    "\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d4d\u0d81-\u0d83\u0dca-\u0ddf\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    "\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b4-\u17d3\u200c\u200d\u3099\u309a"
)
"""Vowel signs, tone marks and accents that follow the letter they belong to; Python counts none of them as a letter."""

_WORD: Final = re.compile(f"(?P<unspaced>(?:[{UNSPACED}][{SIGNS}]*)+)|(?:[^\\W_{UNSPACED}][{SIGNS}]*)+")
_CLUSTER: Final = re.compile(f"[{UNSPACED}][{SIGNS}]*")
_ACCENTS: Final = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0640\u200c\u200d]+")
"""Marks that writers leave out: accents of European letters, points of Hebrew, vowels of Arabic."""
_UNDIVIDED: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "\u0131": "i"}
)
"""European letters that Unicode does not divide into a letter and an accent."""
_VOWEL: Final = re.compile("[aeiouy]")
_LONGEST: Final = 40
"""Characters of a word that count."""


def terms_of(text: str, *, asked: bool = False) -> Iterator[str]:
    """The terms of a text in order, repeats included. Where words have no spaces they are single characters and pairs;
    of a question, single ones only where there is no pair: they say much less."""
    for match in _WORD.finditer(fold(text)):
        if match["unspaced"] is None:
            yield stem(match[0])
        else:
            clusters = _CLUSTER.findall(match[0])
            if not asked or len(clusters) == 1:
                yield from clusters
            yield from map("".join, pairwise(clusters))


def fold(text: str) -> str:
    """Small letters without accents; wide and narrow forms, ligatures and signs for numbers as their plain letters."""
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return unicodedata.normalize("NFC", plain.casefold().translate(_UNDIVIDED))


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The word without the commonest English endings (after Porter, 1980, but fewer steps). Other languages lose
    nothing by it: a word still finds itself."""
    return _without_vowel_ending(_without_verb_ending(_singular(word[:_LONGEST])))


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return word[:-2] if word.endswith(("ses", "xes", "zes", "ches", "shes")) else word[:-1]


def _without_verb_ending(word: str) -> str:
    for ending in ("ing", "ed"):
        stemmed = word.removesuffix(ending)
        if stemmed == word or len(stemmed) < 3 or not _VOWEL.search(stemmed) or word.endswith("eed"):
            continue
        doubled = stemmed[-1] == stemmed[-2] and stemmed[-1] not in "aeioulsz"
        return stemmed[:-1] if doubled else stemmed
    return word


def _without_vowel_ending(word: str) -> str:
    """`price` and `pricing`, `company` and `companies` become one."""
    if len(word) < 4:
        return word
    if word.endswith("e"):
        return word[:-1]
    return word[:-1] + "i" if word.endswith("y") and word[-2] not in "aeiou" else word
