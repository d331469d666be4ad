"""Requests that are a sentence of their own, by language: a sentence that only contains one is talk about something
else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

_SENTENCE_END: Final = re.compile(r"[.!?;…¿¡]+")
_PUNCTUATION: Final = re.compile(r"[^\w'\s-]+")
_MAX_WORDS: Final = 20
"""A longer sentence is no request. Words may be read in two ways, as part of a request or beside it, so the time of a
search doubles with each such pair: this bounds it."""


class SentenceRequests:
    """Finds requests in a speaker's words."""

    def __init__(self, requests: Mapping[str, str], around: Mapping[str, str]) -> None:
        """`requests`: regular expressions of lower-case text by language, "en" among them. `around`: those of the words
        that may stand before, between and after requests."""
        self._sentences: Final = {
            language: re.compile(rf"(?:(?:{around[language]}) )*(?:{request})(?: (?:{around[language]}|{request}))*")
            for language, request in requests.items()
        }

    def are_in(self, text: str, language: str | None) -> bool:
        """Returns True if a sentence of the text, of at most 20 words, consists of requests. `language` is a BCP 47
        tag; a language without requests has those of English."""
        tag = (language or "en").lower().replace("_", "-").split("-")[0]
        sentence = self._sentences.get(tag, self._sentences["en"])
        plain = unicodedata.normalize("NFC", text).lower().replace("\u2019", "'")
        spoken = (_PUNCTUATION.sub(" ", each).split() for each in _SENTENCE_END.split(plain))
        return any(len(words) <= _MAX_WORDS and sentence.fullmatch(" ".join(words)) for words in spoken)
