"""Parses spoken values by their form: e-mail addresses, telephone numbers, days, times of day, yes and no. Pure; None
for nothing that is sure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from models.rule_based.spoken_numbers import SpokenNumber, find_spoken_numbers
from models.rule_based.tool_arguments import Parameter, answered_argument
from models.text.word_lists import words

_FEWEST_DIGITS: Final = 5
"""Of a telephone number."""
_YES: Final = words(
    """yes yeah yep yup sure okay ok correct right certainly definitely absolutely exactly indeed ja jawohl genau klar
    richtig gerne oui sí si claro correcto vale sì certo esatto sim jo tak da"""
)
_NO: Final = words("no nope nah never not nein nö nicht non nee nej não nie")
_UNSURE: Final = re.compile(
    r"\b(?:maybe|perhaps|not sure|don't know|do not know|depends|possibly|vielleicht|weiß nicht|peut-être|quizás)\b"
)
_NO_PROBLEM: Final = re.compile(r"\bno (?:problem|worries)\b|\b(?:kein|gar kein) problem\b", re.I)
_WEEKDAY: Final = (
    "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
    "|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonnabend|sonntag"
    "|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
    "|lunes|martes|miércoles|jueves|viernes|sábado|domingo"
)
_MONTH: Final = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|januar|februar|märz|mai|juni|juli|oktober|dezember"
)
_ORDINAL: Final = (
    r"\d{1,2}(?:st|nd|rd|th|\.)?|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth"
    r"|thirteenth|fourteenth|fifteenth|sixteenth|seventeenth|eighteenth|nineteenth|twentieth"
    r"|(?:twenty|thirty)[ -](?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)|thirtieth"
)
_DAYS: Final = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"\b\d{4}-\d{2}-\d{2}\b",
        r"\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b",
        rf"\b(?:{_ORDINAL})(?: of)? (?:{_MONTH})(?:,? \d{{4}})?\b",
        rf"\b(?:{_MONTH}) (?:the )?(?:{_ORDINAL})(?:,? \d{{4}})?(?!\w)",
        rf"\b(?:(?:next|this|nächsten|diesen) )?(?:{_WEEKDAY})\b",
        r"\b(?:the day after tomorrow|today|tonight|tomorrow|übermorgen|heute|aujourd'hui|demain|hoy|oggi|domani)\b",
    )
)
_HOUR: Final = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_TIMES: Final = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"\b(?:[01]?\d|2[0-3])[:.h][0-5]\d(?: ?(?:am\b|pm\b|a\.m\.|p\.m\.|uhr\b))?",
        r"\b(?:1[0-2]|[1-9]) ?(?:am\b|pm\b|a\.m\.|p\.m\.|o'clock\b|uhr\b)",
        rf"\b(?:half past|quarter past|quarter to) (?:{_HOUR}|1[0-2]|[1-9])\b",
        rf"\b(?:{_HOUR})(?: (?:fifteen|thirty|forty-five|forty five))?"
        r" (?:am\b|pm\b|a\.m\.|p\.m\.|o'clock\b|uhr\b|in the (?:morning|afternoon|evening)\b)",
        r"\b(?:noon|midnight)\b",
    )
)
_GROUPED: Final = re.compile(r"(?<=\d),(?=\d{3}\b)")
_MONEY: Final = re.compile(r"[$€£¥%]")
_DIALLED: Final = re.compile(r"\+?\d[\d ()/.-]*\d")
_PLUS: Final = re.compile(r"\bplus (?=\d)", re.I)
_EMAIL: Final = Parameter("email", "string", "", required=False)


def plain_words(text: str) -> list[str]:
    """Lower-case words for `find_spoken_numbers`: no signs of money, no commas in numbers."""
    spaced = _MONEY.sub(" ", _GROUPED.sub("", text.replace("\u2019", "'")))
    return [word.strip(".,;:!?\"'()") for word in spaced.lower().replace("-", " -").split()]


def numbers_in(text: str) -> tuple[list[str], list[SpokenNumber]]:
    """The words of a text, and the numbers among them."""
    said = plain_words(text)
    return said, find_spoken_numbers(said)


def is_unsure(text: str) -> bool:
    """True if the caller does not commit to anything."""
    return _UNSURE.search(text.lower().replace("\u2019", "'")) is not None


def yes_or_no(text: str) -> bool | None:
    """What an answer says whose first words are yes or no; None for both, and for neither."""
    heads = [word for word in plain_words(_NO_PROBLEM.sub("", text))[:5] if word in _YES or word in _NO]
    if not heads or is_unsure(text):
        return None
    return heads[0] in _YES if len({each in _YES for each in heads}) == 1 else None


def email_in(text: str) -> str | None:
    """An e-mail address, written or spelled out."""
    value = answered_argument(_EMAIL, text)
    return value if isinstance(value, str) else None


def telephone_in(text: str) -> str | None:
    """The digits of the longest number that can be dialled, with its `+`."""
    text = _PLUS.sub("+", text)
    written = [match.group() for match in _DIALLED.finditer(text)]
    said = [each.identifier for each in numbers_in(text)[1] if each.identifier.isdigit()]
    dialled = [("+" if each.startswith("+") else "") + "".join(filter(str.isdigit, each)) for each in (*written, *said)]
    fitting = [each for each in dialled if _FEWEST_DIGITS <= len(each.lstrip("+")) <= 15]
    return max(fitting, key=len, default=None)


def day_in(text: str) -> str | None:
    """A day as it was said, the last one where several were; a date goes before a day of the week."""
    return _last(_DAYS, text)


def time_in(text: str) -> str | None:
    """A time of day as it was said."""
    return _last(_TIMES, text)


def _last(patterns: Sequence[re.Pattern[str]], text: str) -> str | None:
    text = " ".join(text.replace("\u2019", "'").split())
    for pattern in patterns:
        if found := [match.group() for match in pattern.finditer(text)]:
            return found[-1].rstrip(" ,")
    return None
