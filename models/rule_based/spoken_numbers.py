"""Spoken numbers: "four seven one one" is 4711 of an order, "forty two" is a count. English only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from models.text.word_lists import words as listed

_ONES: Final = "zero one two three four five six seven eight nine"
_TEENS: Final = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL: Final = {
    **{word: number for number, word in enumerate(f"{_ONES} {_TEENS}".split())},
    **{word: 10 * number for number, word in enumerate(_TENS.split(), 2)},
    **dict.fromkeys(("oh", "o", "nil"), 0),
}
_SCALES: Final = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_REPEATS: Final = {"double": 2, "triple": 3}
_MISHEARD: Final = {"to": 2, "too": 2, "for": 4, "won": 1, "ate": 8}
"""What recognizers write for digits; believed only between two digits."""
_MOST_BETWEEN: Final = 8
"""Words between two digits that may belong to the number."""
_NOT_ALONE: Final = listed("o oh nil and point")
_WRITTEN: Final = re.compile(r"[\w-]*\d[\w.-]*")


@dataclass(frozen=True)
class SpokenNumber:
    """A number at `words[start:end]`: what it is as an identifier ("4711", "007", "ab12"), and as an amount (None for
    what is none)."""

    start: int
    end: int
    identifier: str
    amount: float | None


def find_spoken_numbers(words: Sequence[str]) -> list[SpokenNumber]:
    """The numbers among lower-case words, in order. Words that stand side by side are one number: callers make no
    pauses that a text would show."""
    found: list[SpokenNumber] = []
    at = 0
    while at < len(words):
        end = _run_end(words, at)
        if end > at:
            found.append(_number(words[at:end], at, end))
        at = max(end, at + 1)
    return found


def _run_end(words: Sequence[str], start: int) -> int:
    """Where the number that begins at `start` ends; `start` when none does."""
    end = at = start
    while at < len(words):
        word = words[at]
        if word in _SMALL or _WRITTEN.fullmatch(word) or (word in _SCALES and at > start):
            at = end = at + 1
        elif at - end < _MOST_BETWEEN and (word in _REPEATS or (at > start and _may_join(word, words[at - 1]))):
            at += 1  # part of it only when more follows
        else:
            break
    return end if any(word not in _NOT_ALONE for word in words[start:end]) else start


def _may_join(word: str, before: str) -> bool:
    return word in _MISHEARD or word == "point" or (word == "and" and before in _SCALES)


def _number(said: Sequence[str], start: int, end: int) -> SpokenNumber:
    written = said[0].rstrip(".-")
    if len(said) == 1 and _WRITTEN.fullmatch(said[0]):
        return SpokenNumber(start, end, written, _amount(written))
    whole, _, decimals = " ".join(said).partition(" point ")
    before, after = _digits(whole.split()), _digits(decimals.split())
    return SpokenNumber(start, end, before + after, _amount(f"{before}.{after}" if after else before))


def _amount(digits: str) -> float | None:
    try:
        return float(digits)
    except ValueError:
        return None


def _digits(said: Sequence[str]) -> str:
    """The words as digits, one number of the language after the other: "forty seven eleven" is 4711, "two hundred and
    five" is 205, "double seven" is 77."""
    numbers: list[_Cardinal | str] = []
    open_one: _Cardinal | None = None
    repeat = 1
    for word in said:
        if word in _REPEATS:
            open_one, repeat = None, _REPEATS[word]
        elif word == "and" or (open_one is not None and open_one.takes(word)):
            continue
        elif (value := _SMALL.get(word, _MISHEARD.get(word))) is not None:
            open_one = _Cardinal(value)
            numbers += [open_one] * repeat
            repeat = 1
        else:
            numbers.append(word)
    return "".join(map(str, numbers))


class _Cardinal:
    """One number of the language, read word by word."""

    def __init__(self, first: int) -> None:
        self._thousands = 0
        self._current = first
        self._room = _room_after(first)

    def takes(self, word: str) -> bool:
        """True if the word belongs to it; then it is counted in."""
        scale, value = _SCALES.get(word), _SMALL.get(word, 0)
        if scale == 100:
            self._current, self._room = self._current * scale, scale
        elif scale is not None:
            self._thousands, self._current, self._room = self._thousands + self._current * scale, 0, scale
        elif 0 < value < self._room:
            self._current, self._room = self._current + value, _room_after(value)
        else:
            return False
        return True

    def __str__(self) -> str:
        return str(self._thousands + self._current)


def _room_after(value: int) -> int:
    """Below what the next word must be to belong to the same number: "twenty" takes a digit, "nine" nothing."""
    return 10 if value >= 20 else 0
