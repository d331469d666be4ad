"""Dates and times of day."""

from __future__ import annotations

import re
from typing import Final

from models.speakable.lexicon import Lexicon, Rule, year

_LAST_WORD: Final = re.compile(r"(\w+)[\s,]*$")
_NOT_BEFORE: Final = r"(?<![\w./:,-])"
_NOT_BEHIND: Final = r"(?!\w|[-./:]\d)"


def date_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """Dates in figures, with the month's name, and years behind a word that asks for one."""
    months = "|".join(sorted(map(re.escape, lexicon.month_numbers), key=len, reverse=True))
    behind_year = r"(?:(?:,| de| del| do)? (?P<year>(?:1[5-9]|20)\d\d)(?![\w.,]?\d))?"

    def said(day: str, month: int, written_year: str | None, match: re.Match[str]) -> str | None:
        if not (1 <= int(day) <= 31 and 1 <= month <= 12):
            return None
        return lexicon.date(int(day), month, _year(written_year, lexicon), word_before(match))

    def in_figures(match: re.Match[str]) -> str | None:
        return said(match["day"], int(match["month"]), match["year"], match)

    def iso(match: re.Match[str]) -> str | None:
        date = in_figures(match)
        return f"{date} " if date and match.group().endswith("T") else date

    def slashed(match: re.Match[str]) -> str | None:
        first, second = int(match["day"]), int(match["month"])
        if second > 12 or (lexicon.month_first and first <= 12):
            first, second = second, first
        return said(str(first), second, match["year"], match)

    def named(match: re.Match[str]) -> str | None:
        return said(match["day"], lexicon.month_numbers[match["month"].lower()], match["year"], match)

    mark = rf"(?:{lexicon.ordinals}|\.|er|º)?"
    iso_date = rf"{_NOT_BEFORE}(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)(?:T(?=\d)|(?!\w|[-./]\d))"
    dotted = rf"{_NOT_BEFORE}(?P<day>\d\d?)\.\s?(?P<month>\d\d?)\.\s?(?P<year>\d{{4}}|\d\d){_NOT_BEHIND}"
    parted = rf"{_NOT_BEFORE}(?P<day>\d\d?)[/-](?P<month>\d\d?)[/-](?P<year>\d{{4}}|\d\d){_NOT_BEHIND}"
    rules = [
        Rule(re.compile(iso_date), iso),
        Rule(re.compile(dotted), in_figures),
        Rule(re.compile(parted), slashed),
        Rule(
            re.compile(
                rf"\b(?P<day>\d\d?){mark} (?:(?:de|of) )?(?P<month>{months})\b(?:\.(?= ?\d))?{behind_year}", re.I
            ),
            named,
        ),
    ]  # fmt: skip
    if lexicon.decimal == "." or lexicon.month_first:
        day_behind = rf"\b(?P<month>{months})\.? (?P<day>\d\d?){mark}(?![\d:]|[.,]\d| ?[ap]\.?m){behind_year}"
        rules.append(Rule(re.compile(day_behind, re.I), named))
    else:
        rules.append(Rule(re.compile(rf"{_NOT_BEFORE}(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>)(?!\w)"), in_figures))
    if not lexicon.years_as_numbers:
        rules.append(
            Rule(
                re.compile(
                    r"(?P<lead>\b(?:in|since|of|by|from|until|till|to|before|after|year|around|im|seit|bis|vor|nach|ab|von"
                    rf"|jahr|jahre|{months})[ ,]+|\()(?P<year>(?:1[5-9]|20)\d\d)\b(?![.,]\d| ?[%€$])",
                    re.I,
                ),
                lambda match: match["lead"] + _year(match["year"], lexicon),
            )
        )
    return tuple(rules)


def time_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """Times with a colon, and those that the word behind them makes one."""
    behind = rf"(?:\s?(?:{lexicon.clock})(?!\w))" if lexicon.clock else "(?:(?!))"

    def said(match: re.Match[str]) -> str | None:
        hour, minute = int(match["hour"]), int(match["minute"] or 0)
        return lexicon.time(hour, minute) if hour <= 24 and minute < 60 else None

    with_colon = rf"(?<![\w:.,])(?P<hour>\d\d?):(?P<minute>[0-5]\d)(?::[0-5]\d(?:\.\d+)?Z?)?(?![\d:]){behind}?"
    with_word = rf"(?<![\w:.,])(?P<hour>\d\d?)(?:[.h](?P<minute>[0-5]\d))?{behind}"
    french = r"(?<![\w:.,])(?P<hour>\d\d?) ?h ?(?P<minute>[0-5]\d)?(?!\w)"
    patterns = [with_colon, with_word] if lexicon.clock else [with_colon]
    if "h" in lexicon.clock.split("|"):
        patterns.append(french)
    return tuple(Rule(re.compile(pattern), said) for pattern in patterns)


def word_before(match: re.Match[str]) -> str:
    """The word before a match, in small letters; "" for none."""
    found = _LAST_WORD.search(match.string[max(0, match.start() - 40) : match.start()])
    return found[1].lower() if found else ""


def _year(written: str | None, lexicon: Lexicon) -> str:
    if not written:
        return ""
    number = int(written) if len(written) == 4 else 2000 + int(written)
    return year(number, lexicon.number_language, lexicon.years_as_numbers)
