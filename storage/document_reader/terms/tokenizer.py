"""Words to find a text by, in any language: folded, without the endings of the text's language; pairs of characters
where words have no spaces.

Both the index and the questions are made with this, so SQLite's own rules for words do not matter: they would take a
whole Chinese clause for one word and cut Hindi and Thai words at their vowel signs.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final

import snowballstemmer

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
_LEFT_OUT: Final = "\u0591-\u05c7\u064b-\u065f\u0670\u0640\u200c\u200d"
"""Marks that writers leave out and no stemmer needs: points of Hebrew, vowels of Arabic."""
_MARKS: Final = re.compile(f"[{_LEFT_OUT}]+")
_ACCENTS: Final = re.compile(f"[\u0300-\u036f{_LEFT_OUT}]+")
"""With the accents of European letters."""
_UNDIVIDED: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "\u0131": "i"}
)
"""European letters that Unicode does not divide into a letter and an accent."""
_LONGEST: Final = 40
"""Characters of a word that count."""
_STEMMERS: Final = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french", "ga":
    "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt":
    "lithuanian", "nb": "norwegian", "ne": "nepali", "nl": "dutch", "nn": "norwegian", "no": "norwegian", "pl":
    "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta":
    "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""The Snowball stemmer of a primary language tag."""
_one_stems: Final = threading.Lock()
"""A stemmer keeps its state in itself while it works."""
ENGLISH: Final = "en"
NO_LANGUAGE: Final = ""
"""Of texts whose words keep their endings."""


def language_of(hint: str | None) -> str:
    """What a BCP 47 tag says of words: a key of the stemmers, or `NO_LANGUAGE` when there is none for it. None is taken
    for English."""
    primary = (hint or ENGLISH).lower().replace("_", "-").split("-")[0]
    return primary if primary in _STEMMERS else NO_LANGUAGE


def terms_of(text: str, language: str = ENGLISH, *, asked: bool = False) -> Iterator[str]:
    """The terms of a text in order, repeats included. Where words have no spaces they are single characters and pairs;
    of a question, single ones only where there is no pair: they say much less. A word with accents has a second term
    where its ending hides behind them, for those who leave them out; a question has none."""
    plain = _MARKS.sub("", unicodedata.normalize("NFKC", text.casefold()))
    for match in _WORD.finditer(unicodedata.normalize("NFC", plain.casefold())):
        if match["unspaced"] is None:
            yield from stems(match[0], language)[: 1 if asked else 2]
        else:
            clusters = _CLUSTER.findall(fold(match[0]))
            if not asked or len(clusters) == 1:
                yield from clusters
            yield from map("".join, pairwise(clusters))


def fold(text: str) -> str:
    """Small letters without accents; wide and narrow forms, ligatures and signs for numbers as their plain letters."""
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return unicodedata.normalize("NFC", plain.casefold().translate(_UNDIVIDED))


@lru_cache(maxsize=100_000)
def stems(word: str, language: str) -> tuple[str, ...]:
    """The folded stem of a word in small letters; and that of the word without accents, where it is another."""
    word = word[:_LONGEST]
    folded = fold(word)
    if language == NO_LANGUAGE:
        return (folded,)
    stemmer = _stemmer(language)
    with _one_stems:
        stem, bare = fold(stemmer.stemWord(word)), fold(stemmer.stemWord(folded))
    return tuple(dict.fromkeys(each for each in (stem, bare) if each)) or (folded,)


@cache
def _stemmer(language: str) -> Any:
    """Snowball's (https://snowballstem.org)."""
    return snowballstemmer.stemmer(_STEMMERS[language])
