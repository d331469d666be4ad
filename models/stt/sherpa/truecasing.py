"""Truecasing: restores the case of a recognizer's text for the transcript."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from models.stt.sherpa.hotwords import normalized_phrases
from models.stt.sherpa.tokens import Case

_I: Final = re.compile(r"\bi\b(?!')|\bi(?='(?:m|d|ll|ve)\b)")


class Truecaser:
    """Lower-cases the texts of a model that knows one case alone, except for "I" in English and for hot words, which
    keep their spelling. Other models' texts are unchanged."""

    def __init__(self, case: Case, language: str | None, hot_words: Sequence[str] = ()) -> None:
        self._one_case = case != "mixed"
        self._english = (language or "en").lower().replace("_", "-").split("-")[0] == "en"
        names = [phrase for phrase in normalized_phrases(hot_words) if phrase != phrase.lower()]
        self._names = {name.lower(): name for name in names}
        longest_first = sorted(self._names, key=len, reverse=True)
        self._any_name = re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b") if names else None

    def apply(self, text: str) -> str:
        """The text with its case restored and white space normalized."""
        text = " ".join(text.split())
        if not self._one_case:
            return text
        text = text.lower()
        if self._english:
            text = _I.sub("I", text)
        if self._any_name is not None:
            text = self._any_name.sub(lambda match: self._names[match.group()], text)
        return text
