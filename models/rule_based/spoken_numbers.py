"""Finds spoken numbers: "four seven one one" is the identifier 4711, "forty two" an amount. English only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from models.text.word_lists import word_set

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
_HOMOPHONES: Final = {"to": 2, "too": 2, "for": 4, "won": 1, "ate": 8}
"""Homophones that speech recognition writes for digits; taken as digits only between two digits."""
_MAX_WORDS_BETWEEN: Final = 8
"""Words between two digits that may still belong to the number."""
_ONLY_WITH_DIGITS: Final = word_set("o oh nil and point")
_WRITTEN: Final = re.compile(r"[\w-]*\d[\w.-]*")


@dataclass(frozen=True)
class SpokenNumber:
    """A number at `words[start:end]`: as an identifier ("4711", "007", "ab12") and as an amount (None if it is not
    one)."""

    start: int
    end: int
    identifier: str
    amount: float | None


def find_spoken_numbers(words: Sequence[str]) -> list[SpokenNumber]:
    """The numbers among lower-case words, in order. Adjacent number words are one number, because a transcript shows no
    pauses."""
    numbers: list[SpokenNumber] = []
    index = 0
    while index < len(words):
        end = _run_end(words, index)
        if end > index:
            numbers.append(_number(words[index:end], index, end))
        index = max(end, index + 1)
    return numbers


def _run_end(words: Sequence[str], start: int) -> int:
    """The end of the number that begins at `start`; `start` if none begins there."""
    end = index = start
    while index < len(words):
        word = words[index]
        if word in _SMALL or _WRITTEN.fullmatch(word) or (word in _SCALES and index > start):
            index = end = index + 1
        elif index - end < _MAX_WORDS_BETWEEN and (
            word in _REPEATS or (index > start and _may_join(word, words[index - 1]))
        ):
            index += 1  # part of it only when more follows
        else:
            break
    return end if any(word not in _ONLY_WITH_DIGITS for word in words[start:end]) else start


def _may_join(word: str, previous: str) -> bool:
    return word in _HOMOPHONES or word == "point" or (word == "and" and previous in _SCALES)


def _number(number_words: Sequence[str], start: int, end: int) -> SpokenNumber:
    written = number_words[0].rstrip(".-")
    if len(number_words) == 1 and _WRITTEN.fullmatch(number_words[0]):
        return SpokenNumber(start, end, written, _amount(written))
    whole, _, decimals = " ".join(number_words).partition(" point ")
    before, after = _digits(whole.split()), _digits(decimals.split())
    return SpokenNumber(start, end, before + after, _amount(f"{before}.{after}" if after else before))


def _amount(digits: str) -> float | None:
    try:
        return float(digits)
    except ValueError:
        return None


def _digits(number_words: Sequence[str]) -> str:
    """Number words as digits, cardinal by cardinal: "forty seven eleven" is 4711, "two hundred and
    five" is 205, "double seven" is 77."""
    numbers: list[_Cardinal | str] = []
    cardinal: _Cardinal | None = None
    repeat = 1
    for word in number_words:
        if word in _REPEATS:
            cardinal, repeat = None, _REPEATS[word]
        elif word == "and" or (cardinal is not None and cardinal.extend_with(word)):
            continue
        elif (value := _SMALL.get(word, _HOMOPHONES.get(word))) is not None:
            cardinal = _Cardinal(value)
            numbers += [cardinal] * repeat
            repeat = 1
        else:
            numbers.append(word)
    return "".join(map(str, numbers))


class _Cardinal:
    """A cardinal number, parsed word by word."""

    def __init__(self, first: int) -> None:
        self._thousands = 0
        self._current = first
        self._limit = _limit_after(first)

    def extend_with(self, word: str) -> bool:
        """Add a word that continues the number. Returns False if it does not."""
        scale, value = _SCALES.get(word), _SMALL.get(word, 0)
        if scale == 100:
            self._current, self._limit = self._current * scale, scale
        elif scale is not None:
            self._thousands, self._current, self._limit = self._thousands + self._current * scale, 0, scale
        elif 0 < value < self._limit:
            self._current, self._limit = self._current + value, _limit_after(value)
        else:
            return False
        return True

    def __str__(self) -> str:
        return str(self._thousands + self._current)


def _limit_after(value: int) -> int:
    """The exclusive upper limit of the next word's value: "twenty" takes a digit, "nine" nothing."""
    return 10 if value >= 20 else 0
