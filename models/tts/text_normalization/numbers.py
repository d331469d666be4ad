"""Written numbers in words: whole, with decimals, digit by digit."""

from __future__ import annotations

import re
from typing import Final

from models.tts.text_normalization.lexicon import Lexicon, cardinal

NUMBER: Final = "\\d{1,3}(?:[.,'\u2019\u00a0\u202f]\\d{3})+(?:[.,]\\d+)?(?!\\d)|\\d+(?:[.,]\\d+)?"
"""A number with or without separators."""
_MAX_DIGITS: Final = 15
"""Maximum number of digits that are spoken as one number."""


def parse(text: str, lexicon: Lexicon) -> tuple[str, str]:
    """The digits before and after the decimal separator of a match of `NUMBER`. A lone separator before three digits
    groups thousands, unless it is the language's decimal separator."""
    plain = re.sub("['\u2019\u00a0\u202f]", "", text)
    last = max(plain.rfind("."), plain.rfind(","))
    if last < 0:
        return plain, ""
    mark, grouped = plain[last], re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+", plain)
    if grouped and (mark != lexicon.decimal or plain.count(mark) > 1):
        return re.sub("[.,]", "", plain), ""
    return re.sub("[.,]", "", plain[:last]), plain[last + 1 :]


def digit_by_digit(text: str, lexicon: Lexicon) -> str:
    """Digit by digit, a longer sequence in groups of three or four."""
    groups = (text[start:end] for start, end in _groups(len(text)))
    return ", ".join(" ".join(cardinal(int(digit), lexicon.number_language) for digit in group) for group in groups)


def number_words(text: str, lexicon: Lexicon) -> str:
    """A written number in words."""
    whole, fraction = parse(text, lexicon)
    if len(whole) > _MAX_DIGITS or (len(whole) > 1 and whole.startswith("0")):
        words = digit_by_digit(whole, lexicon)
    else:
        words = cardinal(int(whole), lexicon.number_language)
    return f"{words} {lexicon.signs.point} {_fraction(fraction, lexicon)}" if fraction else words


def whole_number(text: str, lexicon: Lexicon) -> int | None:
    """The value of a number without decimals that can be counted; None for all others."""
    whole, fraction = parse(text, lexicon)
    return int(whole) if not fraction and len(whole) <= _MAX_DIGITS else None


def spell_out(token: str, lexicon: Lexicon) -> str:
    """Letters and digits one by one, with a pause for a hyphen. Longer words in lower case stay words."""
    parts = []
    for run in re.findall(r"[^\W\d_]+|\d+|/", token):
        if run == "/":
            parts.append(lexicon.signs.slash)
        elif run[0].isdecimal():
            parts.append(digit_by_digit(run, lexicon))
        elif len(run) > 3 and not run.isupper():
            parts.append(run)
        else:
            parts.append(" ".join(lexicon.letters.get(letter, letter) for letter in run.upper()))
    return " ".join(parts)


def _fraction(text: str, lexicon: Lexicon) -> str:
    if lexicon.fractions_as_numbers and len(text) <= 2 and not text.startswith("0"):
        return cardinal(int(text), lexicon.number_language)
    return " ".join(cardinal(int(digit), lexicon.number_language) for digit in text)


def _groups(length: int) -> list[tuple[int, int]]:
    """Begin and end of the groups of a sequence of digits: threes, then fours for the remainder; up to five stay
    together."""
    if length <= 5:
        return [(0, length)]
    fours = length % 3
    starts = [*range(0, length - 4 * fours, 3), *range(length - 4 * fours, length, 4)]
    return list(zip(starts, [*starts[1:], length], strict=True))
