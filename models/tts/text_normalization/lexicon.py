"""A language's words for numbers and symbols: one `Lexicon` for each normalized language, in the languages' own
files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

from num2words import num2words

from models.tts.text_normalization.alignment import Replacement

Gender = Literal["m", "f"]
"""The neuter is inflected like the masculine."""


@dataclass(frozen=True)
class Noun:
    """A counted noun."""

    one: str
    many: str
    gender: Gender = "m"


@dataclass(frozen=True)
class Currency:
    """A currency and its hundredth."""

    unit: Noun
    cent: Noun


@dataclass(frozen=True)
class Signs:
    """Words for symbols within numbers and addresses."""

    point: str
    minus: str
    plus: str
    percent: str
    to: str
    at: str
    dot: str
    dash: str
    underscore: str
    slash: str
    version: str


@dataclass(frozen=True)
class Identifiers:
    """Patterns of the words before an identifier. After `sure` ones every number is one, after `likely` ones a number
    of at least three digits; `between` are words in the middle ("order number 5")."""

    sure: str
    likely: str
    between: str


@dataclass(frozen=True)
class Rule:
    """The replacement for the matches of a pattern."""

    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], Replacement]


@dataclass(frozen=True)
class Lexicon:
    """A language. `number_language` is its name for num2words; `decimal` its decimal separator.

    `counted(n, gender)` is a number before a noun; `date(day, month, year, before)` a date (month 1..12, `year` in
    words or "", `before` the word before it); `time(hour, minute)` a time of day; `clock` a pattern of the words after
    one."""

    number_language: str
    decimal: Literal[".", ","]
    signs: Signs
    months: tuple[str, ...]
    short_months: tuple[str, ...]
    currencies: Mapping[str, Currency]
    cents: str
    """The words after whole units: `{n}` the hundredths in words, `{cents}` their name."""
    scales: Mapping[str, str]
    units: Mapping[str, Noun]
    abbreviations: Mapping[str, str]
    symbols: Mapping[str, str]
    identifiers: Identifiers
    counted: Callable[[int, Gender], str]
    date: Callable[[int, int, str, str], str]
    time: Callable[[int, int], str]
    clock: str = ""
    ordinals: str = ""
    """A pattern of the marks after an ordinal."""
    ordinal: Callable[[int, str, str], str] = lambda number, mark, before: ""
    """Number, mark and the word before, as an ordinal."""
    after_million: Callable[[str], str] = lambda noun: noun
    """A noun after a round million."""
    extra_rules: tuple[Rule, ...] = ()
    acronyms: Rule | None = None
    """Words that are read letter by letter."""
    letters: Mapping[str, str] = field(default_factory=dict)
    """Letters that a synthesizer would read as words."""
    month_first: bool = False
    """11/21/2026 is a day in November."""
    years_as_numbers: bool = True
    fractions_as_numbers: bool = False

    @cached_property
    def month_numbers(self) -> Mapping[str, int]:
        """Months and their abbreviations, in lower case without a full stop."""
        named = (self.months, self.short_months)
        return {name.lower(): number for names in named for number, name in enumerate(names, 1)}


@lru_cache(maxsize=4096)
def cardinal(number: int, language: str) -> str:
    """A number in words."""
    return str(num2words(number, lang=language)).replace(",", "")


@lru_cache(maxsize=1024)
def ordinal(number: int, language: str) -> str:
    """The masculine ordinal in words."""
    return str(num2words(number, lang=language, to="ordinal")).replace(",", "")


@lru_cache(maxsize=1024)
def year(number: int, language: str, as_number: bool) -> str:
    """A year in words; `as_number` in languages without forms like "nineteen ninety"."""
    return cardinal(number, language) if as_number else str(num2words(number, lang=language, to="year"))


def word_tuple(text: str) -> tuple[str, ...]:
    """The words of a list, in their order."""
    return tuple(text.split())
