"""Dates and times of day."""

from __future__ import annotations

import re
from typing import Final

from models.tts.text_normalization.lexicon import Lexicon, Rule, year

_LAST_WORD: Final = re.compile(r"(\w+)[\s,]*$")
_VERBS: Final = frozenset(("may", "march", "mar"))
"""In lower case these are not months."""
_NOT_AFTER_WORD: Final = r"(?<![\w./:,-])"
_NOT_BEFORE_WORD: Final = r"(?!\w|[-./:]\d)"


def date_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """Dates in digits, with the month's name, and years after a word that requires one."""
    years = () if lexicon.years_as_numbers else (_year_rule(lexicon),)
    return (*_digit_rules(lexicon), *_named_rules(lexicon), *years)


def _digit_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    def as_written(match: re.Match[str]) -> str | None:
        return _spoken_date(match, match["day"], int(match["month"]), lexicon)

    def iso(match: re.Match[str]) -> str | None:
        date = as_written(match)
        return f"{date} " if date and match.group().endswith("T") else date

    def with_separators(match: re.Match[str]) -> str | None:
        first, second = int(match["day"]), int(match["month"])
        if second > 12 or (lexicon.month_first and first <= 12):
            first, second = second, first
        return _spoken_date(match, str(first), second, lexicon)

    def after_a_word(match: re.Match[str]) -> str | None:
        date = as_written(match)
        return date and match["lead"] + date

    day, month, year = r"(?P<day>\d\d?)", r"(?P<month>\d\d?)", r"(?P<year>\d{4}|\d\d)"
    rules = [
        Rule(re.compile(rf"{_NOT_AFTER_WORD}(?P<year>\d{{4}})-{month}-{day}(?:T(?=\d)|(?!\w|[-./]\d))"), iso),
        Rule(re.compile(rf"{_NOT_AFTER_WORD}{day}\.\s?{month}\.\s?{year}{_NOT_BEFORE_WORD}"), as_written),
        Rule(re.compile(rf"{_NOT_AFTER_WORD}{day}[/-]{month}[/-]{year}{_NOT_BEFORE_WORD}"), with_separators),
    ]
    if lexicon.month_first:
        lead = r"(?P<lead>\b(?:on|by|until|till|from|since|before|after|through) )"
        rules.append(Rule(re.compile(rf"{lead}{month}/{day}(?P<year>){_NOT_BEFORE_WORD}"), after_a_word))
    if lexicon.decimal == ",":
        rules.append(Rule(re.compile(rf"{_NOT_AFTER_WORD}{day}\.{month}\.(?P<year>)(?!\w)"), as_written))
    return tuple(rules)


def _named_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    def named(match: re.Match[str]) -> str | None:
        if match["month"] in _VERBS:
            return None
        return _spoken_date(match, match["day"], lexicon.month_numbers[match["month"].lower()], lexicon)

    mark = rf"(?:{lexicon.ordinals}|\.|er|º)?"
    month = rf"(?P<month>{_months(lexicon)})"
    year = r"(?:(?:,| de| del| do)? (?P<year>(?:1[5-9]|20)\d\d)(?![\w.,]?\d))?"
    day_first = rf"\b(?P<day>\d\d?){mark} (?:(?:de|of) )?{month}\b(?:\.(?= ?\d))?{year}"
    rules = [Rule(re.compile(day_first, re.I), named)]
    if lexicon.decimal == ".":
        month_first = rf"\b{month}\.? (?P<day>\d\d?){mark}(?![\d:]|[.,]\d| ?[ap]\.?m){year}"
        rules.append(Rule(re.compile(month_first, re.I), named))
    return tuple(rules)


def _year_rule(lexicon: Lexicon) -> Rule:
    words = r"in|since|of|by|from|until|till|to|before|after|year|around|im|seit|bis|vor|nach|ab|von|jahr|jahre"
    lead = rf"(?P<lead>\b(?:{words}|{_months(lexicon)})[ ,]+|\()"
    pattern = re.compile(rf"{lead}(?P<year>(?:1[5-9]|20)\d\d)\b(?![.,]\d| ?[%€$])", re.I)
    return Rule(pattern, lambda match: match["lead"] + _year(match["year"], lexicon))


def _months(lexicon: Lexicon) -> str:
    return "|".join(sorted(map(re.escape, lexicon.month_numbers), key=len, reverse=True))


def _spoken_date(match: re.Match[str], day: str, month: int, lexicon: Lexicon) -> str | None:
    """The date with the match's year; None when there is no such day."""
    if not (1 <= int(day) <= 31 and 1 <= month <= 12):
        return None
    return lexicon.date(int(day), month, _year(match["year"], lexicon), word_before(match))


def time_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """Times with a colon, and those with a word for the hour after them."""
    clock = rf"(?:\s?(?:{lexicon.clock})(?!\w))" if lexicon.clock else "(?:(?!))"

    def spoken(match: re.Match[str]) -> str | None:
        hour, minute = int(match["hour"]), int(match["minute"] or 0)
        return lexicon.time(hour, minute) if hour <= 24 and minute < 60 else None

    with_colon = rf"(?<![\w:.,])(?P<hour>\d\d?):(?P<minute>[0-5]\d)(?::[0-5]\d(?:\.\d+)?Z?)?(?![\d:]){clock}?"
    with_word = rf"(?<![\w:.,])(?P<hour>\d\d?)(?:[.h](?P<minute>[0-5]\d))?{clock}"
    french = r"(?<![\w:.,])(?P<hour>\d\d?) ?h ?(?P<minute>[0-5]\d)?(?!\w)"
    patterns = [with_colon, with_word] if lexicon.clock else [with_colon]
    if "h" in lexicon.clock.split("|"):
        patterns.append(french)
    return tuple(Rule(re.compile(pattern), spoken) for pattern in patterns)


def word_before(match: re.Match[str]) -> str:
    """The word before a match, in lower case; "" for none."""
    last = _LAST_WORD.search(match.string[max(0, match.start() - 40) : match.start()])
    return last[1].lower() if last else ""


def _year(written: str | None, lexicon: Lexicon) -> str:
    if not written:
        return ""
    number = int(written) if len(written) == 4 else 2000 + int(written)
    return year(number, lexicon.number_language, lexicon.years_as_numbers)
