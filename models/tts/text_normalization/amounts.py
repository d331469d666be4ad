"""Amounts: money, percent, units, ordinals, ranges; and other numbers."""

from __future__ import annotations

import re
from typing import Final

from models.tts.text_normalization.dates import word_before
from models.tts.text_normalization.lexicon import Currency, Lexicon, Noun, Rule, year
from models.tts.text_normalization.numbers import NUMBER, digit_by_digit, number_words, parse, whole_number

_NOT_AFTER_WORD: Final = r"(?<![\w.,])"
_MINUS: Final = r"(?P<minus>(?<!\w)[-\u2212])?"


_FRACTIONS: Final = {"1/2": "½", "1/4": "¼", "3/4": "¾"}
"""Spoken as the single characters."""
_SPACED: Final = r"(?<![\w.,+])(?<!\d )[1-9]\d{0,2}(?: \d{3})+(?!\w| \d)"


def amount_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """Money, percent, units and ordinals, in this order."""
    return (*_money(lexicon), _percent(lexicon), _units(lexicon), *_ordinals(lexicon))


def number_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """All other numbers."""
    minus = lexicon.signs.minus

    def number(match: re.Match[str]) -> str:
        before = f"{minus} " if match["minus"] else ""
        return f"{before}{number_words(match['number'], lexicon)}"

    def spaced(match: re.Match[str]) -> str:
        before, behind = match.string[: match.start()][-1:], match.string[match.end() :][:1]
        digits = digit_by_digit(match.group(), lexicon)
        return (" " if before.isalnum() else "") + digits + (" " if behind.isalnum() else "")

    return (
        Rule(re.compile(r"(?<![\w/.,])(?:1/2|1/4|3/4)(?![\w/]|[.,]\d)"), lambda match: _FRACTIONS[match.group()]),
        Rule(re.compile(r"(?<=\d):(?=\d)"), lambda _: f" {lexicon.signs.to} "),
        Rule(re.compile(r"(?<=\d)[xX](?!\w)"), lambda _: " \u00d7"),
        Rule(re.compile(r"(?<=\d) ?/ ?(?=\d)"), lambda _: f" {lexicon.signs.slash} "),
        Rule(re.compile(r"(?<=\d)(?: ?[*\u00d7x] ?)(?=\d)"), lambda _: " \u00d7 "),
        Rule(re.compile(rf"(?<![\d.,]){_MINUS}(?<!\w)(?P<number>{NUMBER})(?![\w])"), number),
        Rule(re.compile(r"\d+"), spaced),
    )


def range_rule(lexicon: Lexicon) -> Rule:
    """From one number or time to another. Before all rules that take the second one for negative."""
    number = r"[$€£]?\d{1,4}(?:[:.,h]\d{1,2})?"
    half = "(?: [AP] M)?"
    pattern = (
        rf"(?<![\w.,:/-])(?P<first>{number}[%€]?{half})(?: ?\u2013 ?|-)(?P<second>{number})(?![\w:/-]*-\d|[.,:]?\d)"
    )

    def spoken(match: re.Match[str]) -> str:
        ends = [match["first"], match["second"]]
        if not lexicon.years_as_numbers and all(re.fullmatch(r"(?:1[5-9]|20)\d\d", end) for end in ends):
            ends = [year(int(end), lexicon.number_language, False) for end in ends]
        return f"{ends[0]} {lexicon.signs.to} {ends[1]}"

    return Rule(re.compile(pattern), spoken)


def _money(lexicon: Lexicon) -> tuple[Rule, ...]:
    names = "|".join(sorted(map(re.escape, lexicon.currencies), key=len, reverse=True))
    scales = "|".join(sorted(map(re.escape, lexicon.scales), key=len, reverse=True))
    scale = rf"(?: ?(?P<scale>{scales})(?!\w))?"

    def spoken(match: re.Match[str]) -> str:
        currency = lexicon.currencies[match["currency"]]
        minus = f"{lexicon.signs.minus} " if match["minus"] else ""
        if match["scale"]:
            number = f"{number_words(match['number'], lexicon)} {lexicon.scales[match['scale']]}"
            return f"{minus}{number} {lexicon.after_million(currency.unit.many)}"
        return minus + _price(match["number"], currency, lexicon)

    return (
        Rule(re.compile(rf"{_SPACED}(?= ?(?:{names}))"), _join_groups),
        Rule(re.compile(rf"(?<!\w){_MINUS}(?P<currency>{names})[ \u00a0]?(?P<number>{NUMBER}){scale}(?![\w])"), spoken),
        Rule(
            re.compile(rf"{_NOT_AFTER_WORD}{_MINUS}(?P<number>{NUMBER}){scale}[ \u00a0]?(?P<currency>{names})(?!\w)"),
            spoken,
        ),
    )


def _join_groups(match: re.Match[str]) -> str:
    return match.group().replace(" ", "\u202f")


def _price(written: str, currency: Currency, lexicon: Lexicon) -> str:
    whole, fraction = parse(written, lexicon)
    if len(fraction) > 2 or len(whole) > 12:
        return f"{number_words(written, lexicon)} {currency.unit.many}"
    units, cents = int(whole), int(fraction.ljust(2, "0"))
    if not cents:
        return _counted(units, currency.unit, lexicon)
    if not units:
        return _counted(cents, currency.cent, lexicon)
    name = currency.cent.one if cents == 1 else currency.cent.many
    behind = lexicon.cents.format(n=lexicon.counted(cents, currency.cent.gender), cents=name)
    return _counted(units, currency.unit, lexicon) + behind


def _counted(number: int, noun: Noun, lexicon: Lexicon) -> str:
    if number and number % 1_000_000 == 0:
        return f"{lexicon.counted(number, noun.gender)} {lexicon.after_million(noun.many)}"
    return f"{lexicon.counted(number, noun.gender)} {noun.one if number == 1 else noun.many}"


def _percent(lexicon: Lexicon) -> Rule:
    pattern = rf"{_NOT_AFTER_WORD}{_MINUS}(?P<number>{NUMBER})[ \u00a0\u202f]?%"
    return Rule(re.compile(pattern), lambda match: _signed(match, lexicon) + f" {lexicon.signs.percent}")


def _units(lexicon: Lexicon) -> Rule:
    names = "|".join(sorted(map(re.escape, lexicon.units), key=len, reverse=True))

    def spoken(match: re.Match[str]) -> str:
        noun, number = lexicon.units[match["unit"]], whole_number(match["number"], lexicon)
        minus = f"{lexicon.signs.minus} " if match["minus"] else ""
        if number is None:
            return f"{minus}{number_words(match['number'], lexicon)} {noun.many}"
        return minus + _counted(number, noun, lexicon)

    return Rule(
        re.compile(rf"{_NOT_AFTER_WORD}{_MINUS}(?P<number>{NUMBER})[ \u00a0\u202f]?(?P<unit>{names})(?![\w°²³])"),
        spoken,
    )


def _ordinals(lexicon: Lexicon) -> tuple[Rule, ...]:
    if not lexicon.ordinals:
        return ()

    def spoken(match: re.Match[str]) -> str:
        return lexicon.ordinal(int(match["number"]), match["mark"], word_before(match))

    pattern = rf"{_NOT_AFTER_WORD}(?P<number>\d{{1,6}})(?P<mark>{lexicon.ordinals})(?![\w])"
    return (Rule(re.compile(pattern), spoken),)


def _signed(match: re.Match[str], lexicon: Lexicon) -> str:
    minus = f"{lexicon.signs.minus} " if match["minus"] else ""
    return minus + number_words(match["number"], lexicon)
