"""Beginnings of words: of a recognizer's tokens, and of a text of which another recognizer has timed most words."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final

WORD_START: Final = "\u2581 "
"""Characters of which one begins the first token of a word."""


def starts_of_tokens(text: str, tokens: Sequence[str], token_starts_s: Sequence[float]) -> list[float]:
    """The beginnings of the words of `text`, s, which white space separates; `tokens` are the text's, each with its
    beginning. Empty if tokens and words do not agree, as in a language that is written without spaces."""
    words = text.split()
    if len(tokens) != len(token_starts_s) or not words:
        return []
    at_start = [index for index, token in enumerate(tokens) if index == 0 or token[:1] in tuple(WORD_START)]
    return [float(token_starts_s[index]) for index in at_start] if len(at_start) == len(words) else []


def starts_of_other_text(text: str, timed_text: str, timed_starts_s: Sequence[float]) -> list[float]:
    """The beginnings of the words of `text`, s, by those of another text of the same speech. Words that only `text` has
    share the time between their neighbours. Empty if none of the words is in the other text."""
    words, timed = _plain(text), _plain(timed_text)
    if len(timed) != len(timed_starts_s):
        return []
    known: list[float | None] = [None] * len(words)
    for block in SequenceMatcher(None, timed, words, autojunk=False).get_matching_blocks():
        for index in range(block.size):
            known[block.b + index] = timed_starts_s[block.a + index]
    found = [index for index, start in enumerate(known) if start is not None]
    if not found:
        return []
    starts = [start or 0.0 for start in known]
    starts[: found[0]] = [starts[found[0]]] * found[0]
    starts[found[-1] + 1 :] = [max(starts[found[-1]], timed_starts_s[-1])] * (len(words) - found[-1] - 1)
    for before, after in pairwise(found):
        step = (starts[after] - starts[before]) / (after - before)
        for index in range(before + 1, after):
            starts[index] = starts[before] + step * (index - before)
    return starts


def _plain(text: str) -> list[str]:
    """The words without case and punctuation."""
    return ["".join(each for each in word.casefold() if each.isalnum()) for word in text.split()]
