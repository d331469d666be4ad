"""Parses spoken values by their form: e-mail addresses, telephone numbers, days, times of day, yes and no. Pure;
returns None if uncertain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from models.rule_based.spoken_numbers import SpokenNumber, find_spoken_numbers
from models.rule_based.tool_arguments import Parameter, argument_in_answer
from models.text.word_lists import word_set

_MIN_TELEPHONE_DIGITS: Final = 5
"""Digits of a telephone number, at least."""
_YES_WORDS: Final = word_set(
    """yes yeah yep yup sure okay ok correct right certainly definitely absolutely exactly indeed ja jawohl genau klar
    richtig gerne oui sí si claro correcto vale sì certo esatto sim jo tak da"""
)
_NO_WORDS: Final = word_set("no nope nah never not nein nö nicht non nee nej não nie")
_UNSURE_PHRASE: Final = re.compile(
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
    """Lower-case words for `find_spoken_numbers`, without currency signs and commas in numbers."""
    spaced = _MONEY.sub(" ", _GROUPED.sub("", text.replace("\u2019", "'")))
    return [word.strip(".,;:!?\"'()") for word in spaced.lower().replace("-", " -").split()]


def numbers_in(text: str) -> tuple[list[str], list[SpokenNumber]]:
    """The words of a text, and the numbers among them."""
    spoken = plain_words(text)
    return spoken, find_spoken_numbers(spoken)


def is_unsure(text: str) -> bool:
    """True if the caller expresses doubt."""
    return _UNSURE_PHRASE.search(text.lower().replace("\u2019", "'")) is not None


def yes_or_no(text: str) -> bool | None:
    """The meaning of an answer that begins with yes or no; None for both, and for neither."""
    first_words = [
        word for word in plain_words(_NO_PROBLEM.sub("", text))[:5] if word in _YES_WORDS or word in _NO_WORDS
    ]
    if not first_words or is_unsure(text):
        return None
    return first_words[0] in _YES_WORDS if len({each in _YES_WORDS for each in first_words}) == 1 else None


def email_in(text: str) -> str | None:
    """An e-mail address, written or spelled out."""
    value = argument_in_answer(_EMAIL, text)
    return value if isinstance(value, str) else None


def telephone_in(text: str) -> str | None:
    """The digits of the longest telephone number, with its `+`."""
    text = _PLUS.sub("+", text)
    written = [match.group() for match in _DIALLED.finditer(text)]
    spoken = [each.identifier for each in numbers_in(text)[1] if each.identifier.isdigit()]
    candidates = [
        ("+" if each.startswith("+") else "") + "".join(filter(str.isdigit, each)) for each in (*written, *spoken)
    ]
    valid = [each for each in candidates if _MIN_TELEPHONE_DIGITS <= len(each.lstrip("+")) <= 15]
    return max(valid, key=len, default=None)


def day_in(text: str) -> str | None:
    """A day as spoken, the last of several; a date goes before a day of the week."""
    return _last_match(_DAYS, text)


def time_in(text: str) -> str | None:
    """A time of day as spoken."""
    return _last_match(_TIMES, text)


def _last_match(patterns: Sequence[re.Pattern[str]], text: str) -> str | None:
    text = " ".join(text.replace("\u2019", "'").split())
    for pattern in patterns:
        if found := [match.group() for match in pattern.finditer(text)]:
            return found[-1].rstrip(" ,")
    return None
