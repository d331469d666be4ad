"""Cuts a stream of text into sentences as early as it is sure of them, so that speaking starts with the first one."""

from __future__ import annotations

import re
from typing import Final

from models.vocabulary import words

_END: Final = re.compile(r"[.!?…]+[\"'”\u2019)\]]*(?=\s)|[。\uff01\uff1f]+[」』”\u2019]*|\n+")
_NEVER: Final = words("mr mrs ms dr prof st vs e.g i.e approx fig dept tel bzw z.b d.h sr sra mme nr")
"""Abbreviations that do not end a sentence: a name, a number or an explanation follows."""
_PERHAPS: Final = words("a.m p.m etc inc ltd co corp jr usw u.s no")
"""Abbreviations that end one when a capital letter follows."""
_LAST_WORD: Final = re.compile(r"([^\s(\"'“\u2018]+?)[.…]+[\"'”\u2019)\]]*$")


class Sentences:
    """Collects text and gives out whole sentences, without white space around them."""

    def __init__(self) -> None:
        self._text = ""

    def push(self, delta: str) -> list[str]:
        """Add a piece of text; the sentences that are complete now, in order."""
        self._text += delta
        sentences = []
        start = position = 0
        while match := _END.search(self._text, position):
            position = match.end()
            verdict = _ends(self._text[start:position], self._text[position:].lstrip(" \t"))
            if verdict is None:
                break
            if verdict:
                sentences.append(self._text[start:position].strip())
                start = position
        self._text = self._text[start:]
        return [sentence for sentence in sentences if sentence]

    def rest(self) -> str:
        """What is left at the end of the stream, "" for nothing; the next stream starts empty."""
        rest, self._text = self._text.strip(), ""
        return rest


def split_sentences(text: str) -> list[str]:
    """All sentences of a text that is known whole."""
    sentences = Sentences()
    whole = [*sentences.push(text), sentences.rest()]
    return [sentence for sentence in whole if sentence]


def _ends(candidate: str, following: str) -> bool | None:
    """Whether a sentence ends behind `candidate`; None when that depends on text that is still to come."""
    stripped = candidate.strip()
    match = _LAST_WORD.search(stripped)
    if match is None or candidate.endswith("\n"):
        return True
    word = match.group(1).lower()
    if word in _NEVER or (stripped == match.group() and word.isdigit()):
        return False
    initial = len(word) == 1 and word.isalpha() and word != "i"
    if word in _PERHAPS or initial or stripped.endswith(("...", "…")):
        return None if not following else following[0].isupper() and not initial
    return True
