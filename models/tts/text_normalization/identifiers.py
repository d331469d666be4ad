"""Identifiers, spoken digit by digit: telephone numbers, order numbers, codes."""

from __future__ import annotations

import re
from typing import Final

from models.tts.text_normalization.alignment import Inserted, Part, Replacement
from models.tts.text_normalization.lexicon import Lexicon, Rule
from models.tts.text_normalization.numbers import digit_by_digit, number_words, spell_out

_TELEPHONE: Final = re.compile(
    r"(?<![\w.,+])(?:"
    r"\+\d{1,3}(?:[ \u00a0./-]?\(?\d{1,5}\)?){1,7}"
    r"|\(0?\d{2,5}\)[ ./-]?\d{2,}(?:[ /-]\d{2,}){0,4}"
    r"|(?:1[-. ])?\(?\d{3}\)?[-. ]\d{3}[-. ]\d{4}"
    r"|\d{3}-\d{4}"
    r"|0\d(?:[ .-]\d{2}){4}"
    r"|0\d{1,4}(?:[ /-]\d{2,8}){1,4}"
    r"|[6-9]\d{2} \d{3} \d{3}"
    r")(?![\w]|[.,:-]\d)"
)
_CODE: Final = re.compile(r"(?<![\w@])(?<!\d[.,])(?:[^\W\d_]+-?\d|\d+-?[^\W\d_])[^\W_]*(?:-[^\W_]+)*(?![\w@])")
_GROUPED: Final = re.compile(
    r"(?<![\w.,-])(?:[A-Z]{2}\d{2}|\d{4})(?:[ -][A-Z\d]{4}){2,8}(?:[ -][A-Z\d]{1,3})?(?![\w]|[.,-]\d)"
)
"""Bank accounts and cards."""
_TOKEN: Final = (
    r"(?P<token>(?=[\w-]*\d)(?:\d{4} [A-Z]{2}(?!\w)|\d{2,}(?: \d{2,})+|[A-Za-z\d]+(?:[-/][A-Za-z\d]+)*))"
    r"(?![\w%]|[.,:]\d|\s?[%€$£°])"
)
_QUANTITY: Final = re.compile(r"\d+(?:st|nd|rd|th|[a-z]{1,3})")
_NOT_COUNTED: Final = r"(?:is|was|has|ships|arrives|contains|costs|needs|includes|does|goes)"
_COUNTED: Final = re.compile(rf"\s+(?!{_NOT_COUNTED}\b)[a-z]{{3,}}s\b")


def identifier_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """Accounts, cards, telephone numbers; tokens after a word that names an identifier."""
    words = lexicon.identifiers
    between = rf"(?:[\s:#.]+(?i:{words.between})\b)*[\s:#.]+"
    named = re.compile(rf"(?<!\w)(?i:(?P<sure>{words.sure})|(?:{words.likely}))\b{between}{_TOKEN}")
    return (
        Rule(_GROUPED, lambda match: _groups(match.group(), match.start(), lexicon)),
        Rule(_TELEPHONE, lambda match: _telephone(match, lexicon)),
        Rule(named, lambda match: _named(match, lexicon)),
    )


def code_rules(lexicon: Lexicon) -> tuple[Rule, ...]:
    """Letters with digits; leading zeros; long numbers. To be applied after the units."""

    def digits(match: re.Match[str]) -> str:
        return digit_by_digit(match.group(), lexicon)

    return (
        Rule(re.compile(r"(?<![\w.])[vV](?=\d+(?:\.\d+)*(?!\w))"), lambda _: f"{lexicon.signs.version} "),
        Rule(re.compile(r"(?<![\w.,])\d+(?:\.\d+){2,}(?![\w]|[.,]\d)"), lambda match: _dotted(match, lexicon)),
        Rule(_CODE, lambda match: _code(match, lexicon)),
        Rule(re.compile(r"(?<![\w.,])(?:0\d+|\d{7,})(?!\w|[.,]\d)"), digits),
    )


def _telephone(match: re.Match[str], lexicon: Lexicon) -> Replacement:
    """Group by group, as written."""
    written = match.group()
    groups = list(re.finditer(r"\d+", written))
    if sum(len(group.group()) for group in groups) < 7 or (written[0] not in "+(0" and len(groups) < 2):
        return None
    parts: list[Part] = [Inserted(f"{lexicon.signs.plus} ", match.start())] if written.startswith("+") else []
    for number, group in enumerate(groups, 1):
        pause = ", " if number < len(groups) else ""
        parts.append(Inserted(digit_by_digit(group.group(), lexicon) + pause, match.start() + group.start()))
    return parts


def _named(match: re.Match[str], lexicon: Lexicon) -> Replacement:
    token = match["token"]
    few = token.isdecimal() and len(token) < 3
    following = match.string[match.end() :]
    if _QUANTITY.fullmatch(token) or (not match["sure"] and (few or (token.isdecimal() and _COUNTED.match(following)))):
        return None
    start = match.start("token")
    return [slice(match.start(), start), *_groups(token, start, lexicon)]


def _groups(token: str, start: int, lexicon: Lexicon) -> list[Part]:
    """The groups of an identifier, which begins at `start`, with pauses between them."""
    groups = list(re.finditer(r"[^\s-]+", token))
    parts: list[Part] = []
    for number, group in enumerate(groups, 1):
        pause = ", " if number < len(groups) else ""
        parts.append(Inserted(spell_out(group.group(), lexicon) + pause, start + group.start()))
    return parts


def _code(match: re.Match[str], lexicon: Lexicon) -> Replacement:
    """A code if it has few letters; otherwise a word and a number ("COVID-19")."""
    token = match.group()
    runs = list(re.finditer(r"[^\W\d_]+|\d+", token))
    letters = [run.group() for run in runs if not run.group().isdecimal()]
    if all(len(run) <= 3 and (run.isupper() or len(run) == 1) for run in letters):
        return ", ".join(spell_out(part, lexicon) for part in token.split("-"))
    parts: list[Part] = []
    for run in runs:
        start, end = match.start() + run.start(), match.start() + run.end()
        parts += [Inserted(" ", start)] if parts else []
        parts.append(slice(start, end))
    return parts


def _dotted(match: re.Match[str], lexicon: Lexicon) -> Replacement:
    """Versions and IP addresses."""
    dot = f" {lexicon.signs.dot} "
    return dot.join(number_words(part, lexicon) for part in match.group().split("."))
