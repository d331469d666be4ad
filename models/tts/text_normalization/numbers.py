"""Written numbers in words: whole, with decimals, digit by digit."""

from __future__ import annotations

import re
from typing import Final

from models.tts.text_normalization.lexicon import Lexicon, cardinal

NUMBER: Final = "\\d{1,3}(?:[.,'\u2019\u00a0\u202f]\\d{3})+(?:[.,]\\d+)?(?!\\d)|\\d+(?:[.,]\\d+)?"
"""A number with or without separators."""
_LONGEST: Final = 15
"""Figures of a number that is still said as one."""


def parse(text: str, lexicon: Lexicon) -> tuple[str, str]:
    """The figures before and behind the decimal separator of what `NUMBER` found. A lone separator before three figures
    groups thousands, unless it is the language's decimal separator."""
    plain = re.sub("['\u2019\u00a0\u202f]", "", text)
    last = max(plain.rfind("."), plain.rfind(","))
    if last < 0:
        return plain, ""
    mark, grouped = plain[last], re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+", plain)
    if grouped and (mark != lexicon.decimal or plain.count(mark) > 1):
        return re.sub("[.,]", "", plain), ""
    return re.sub("[.,]", "", plain[:last]), plain[last + 1 :]


def figures(text: str, lexicon: Lexicon) -> str:
    """Figure by figure, a longer row in groups of three or four."""
    groups = (text[start:end] for start, end in _groups(len(text)))
    return ", ".join(" ".join(cardinal(int(figure), lexicon.number_language) for figure in group) for group in groups)


def number_words(text: str, lexicon: Lexicon) -> str:
    """A number as it is written, in words."""
    whole, fraction = parse(text, lexicon)
    if len(whole) > _LONGEST or (len(whole) > 1 and whole.startswith("0")):
        said = figures(whole, lexicon)
    else:
        said = cardinal(int(whole), lexicon.number_language)
    return f"{said} {lexicon.signs.point} {_fraction(fraction, lexicon)}" if fraction else said


def whole_number(text: str, lexicon: Lexicon) -> int | None:
    """The value of a number without decimals that can be counted; None for all others."""
    whole, fraction = parse(text, lexicon)
    return int(whole) if not fraction and len(whole) <= _LONGEST else None


def spelled(token: str, lexicon: Lexicon) -> str:
    """Letters and figures one by one; a pause for a hyphen. Longer words in small letters stay words."""
    said = []
    for run in re.findall(r"[^\W\d_]+|\d+|/", token):
        if run == "/":
            said.append(lexicon.signs.slash)
        elif run[0].isdecimal():
            said.append(figures(run, lexicon))
        elif len(run) > 3 and not run.isupper():
            said.append(run)
        else:
            said.append(" ".join(lexicon.letters.get(letter, letter) for letter in run.upper()))
    return " ".join(said)


def _fraction(text: str, lexicon: Lexicon) -> str:
    if lexicon.fractions_as_numbers and len(text) <= 2 and not text.startswith("0"):
        return cardinal(int(text), lexicon.number_language)
    return " ".join(cardinal(int(figure), lexicon.number_language) for figure in text)


def _groups(length: int) -> list[tuple[int, int]]:
    """Where the groups of so many figures begin and end: threes, then fours for what is over; five stay together."""
    if length <= 5:
        return [(0, length)]
    fours = length % 3
    starts = [*range(0, length - 4 * fours, 3), *range(length - 4 * fours, length, 4)]
    return list(zip(starts, [*starts[1:], length], strict=True))
