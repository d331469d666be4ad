"""Tokenizer: search terms of a text in any language, folded and stemmed; pairs of characters where words have no
spaces.

It makes the terms of both the index and the queries, instead of SQLite's tokenizers, which take a Chinese clause for
one word and cut Hindi and Thai words at their vowel signs."""

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
"""Letters of scripts without spaces between words (Thai, Lao, Burmese, Khmer, Japanese, Chinese), as a character class
of a regular expression."""
SIGNS: Final = (
    "\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d"
    "\u0a70\u0a71\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3c-\u0c56"
    "\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d4d\u0d81-\u0d83\u0dca-\u0ddf\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    "\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b4-\u17d3\u200c\u200d\u3099\u309a"
)
"""Vowel signs, tone marks and accents that follow the letter they belong to; Python counts none of them as a letter."""

_WORD: Final = re.compile(f"(?P<unspaced>(?:[{UNSPACED}][{SIGNS}]*)+)|(?:[^\\W_{UNSPACED}][{SIGNS}]*)+")
_CLUSTER: Final = re.compile(f"[{UNSPACED}][{SIGNS}]*")
_OPTIONAL_MARKS: Final = "\u0591-\u05c7\u064b-\u065f\u0670\u0640\u200c\u200d"
"""Optional marks that no stemmer needs: Hebrew points, Arabic vowels."""
_MARKS: Final = re.compile(f"[{_OPTIONAL_MARKS}]+")
_ACCENTS: Final = re.compile(f"[\u0300-\u036f{_OPTIONAL_MARKS}]+")
"""Also accents of European letters."""
_UNDECOMPOSED: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "\u0131": "i"}
)
"""European letters that Unicode does not decompose into a letter and an accent."""
_MAX_WORD_CHARACTERS: Final = 40
"""Characters of a word that are used."""
_STEMMERS: Final = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french", "ga":
    "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt":
    "lithuanian", "nb": "norwegian", "ne": "nepali", "nl": "dutch", "nn": "norwegian", "no": "norwegian", "pl":
    "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta":
    "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""The Snowball stemmer of a primary language tag."""
_stemmer_lock: Final = threading.Lock()
"""Serializes the stemmers, which have state while they run."""
ENGLISH: Final = "en"
NO_LANGUAGE: Final = ""
"""The language of texts whose words are not stemmed."""


def language_of(hint: str | None) -> str:
    """Returns the stemmer's key for a BCP 47 tag, `NO_LANGUAGE` when there is no stemmer for it. None means English."""
    primary = (hint or ENGLISH).lower().replace("_", "-").split("-")[0]
    return primary if primary in _STEMMERS else NO_LANGUAGE


def terms_of(text: str, language: str = ENGLISH, *, is_query: bool = False) -> Iterator[str]:
    """Yields the terms of a text in order, with repeats. Where words have no spaces they are single characters and
    pairs; in a query (`is_query`) single ones only where there is no pair. A word whose accents change its stem has a
    second term without them, so that queries without accents match; in a query it has none."""
    plain = _MARKS.sub("", unicodedata.normalize("NFKC", text.casefold()))
    for match in _WORD.finditer(unicodedata.normalize("NFC", plain.casefold())):
        if match["unspaced"] is None:
            yield from stems(match[0], language)[: 1 if is_query else 2]
        else:
            clusters = _CLUSTER.findall(fold(match[0]))
            if not is_query or len(clusters) == 1:
                yield from clusters
            yield from map("".join, pairwise(clusters))


def fold(text: str) -> str:
    """Returns the text in lower case without accents; wide and narrow forms, ligatures and number signs as plain
    letters."""
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return unicodedata.normalize("NFC", plain.casefold().translate(_UNDECOMPOSED))


@lru_cache(maxsize=100_000)
def stems(word: str, language: str) -> tuple[str, ...]:
    """Returns the folded stem of a lower-case word, and that of the word without accents if it differs."""
    word = word[:_MAX_WORD_CHARACTERS]
    folded = fold(word)
    if language == NO_LANGUAGE:
        return (folded,)
    stemmer = _stemmer(language)
    with _stemmer_lock:
        stem, bare = fold(stemmer.stemWord(word)), fold(stemmer.stemWord(folded))
    return tuple(dict.fromkeys(each for each in (stem, bare) if each)) or (folded,)


@cache
def _stemmer(language: str) -> Any:
    """The Snowball stemmer (https://snowballstem.org) of a language."""
    return snowballstemmer.stemmer(_STEMMERS[language])
