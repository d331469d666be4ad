"""Text as a synthesizer can say it: figures in words, addresses and identifiers as one reads them out, nothing that is
written for the eye. For English, German, French, Spanish, Italian, Dutch and Portuguese; in other languages only markup
and emoji go, and the synthesizer says the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final

from models.tts.text_normalization.addresses import address_rules
from models.tts.text_normalization.alignment import Spoken, rewrite, unchanged
from models.tts.text_normalization.amounts import amount_rules, plain_rules, range_rule
from models.tts.text_normalization.dates import date_rules, time_rules
from models.tts.text_normalization.identifiers import code_rules, identifier_rules
from models.tts.text_normalization.languages.dutch import DUTCH
from models.tts.text_normalization.languages.english import AMERICAN, BRITISH
from models.tts.text_normalization.languages.french import FRENCH
from models.tts.text_normalization.languages.german import GERMAN
from models.tts.text_normalization.languages.italian import ITALIAN
from models.tts.text_normalization.languages.portuguese import BRAZILIAN, PORTUGUESE
from models.tts.text_normalization.languages.spanish import SPANISH
from models.tts.text_normalization.lexicon import Lexicon, Rule, cardinal
from models.tts.text_normalization.markup import tidy, without_markup

__all__ = ["Spoken", "normalize_for_speech", "warm_up"]

_LEXICONS: Final[Mapping[str, Lexicon]] = {
    "en": AMERICAN,
    **dict.fromkeys(("en-gb", "en-au", "en-nz", "en-ie", "en-in", "en-za"), BRITISH),
    "de": GERMAN,
    "fr": FRENCH,
    "fr-be": replace(FRENCH, number_language="fr_BE"),
    "fr-ch": replace(FRENCH, number_language="fr_CH"),
    "es": SPANISH,
    "it": ITALIAN,
    "nl": DUTCH,
    "pt": PORTUGUESE,
    "pt-br": BRAZILIAN,
}
_RAISED: Final = dict(zip("⁰¹⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "014567890123456789", strict=True))
_SMALL: Final = re.compile(f"[{''.join(_RAISED)}]")
_LIST: Final = re.compile(r"(?m)^[ \t]*(\d{1,3})[.)](?=\s+[^\W\d])")
"""The number of an item of a list."""
_DIGIT: Final = re.compile(r"\d")
_WORD: Final = re.compile(r"[^\W_]")


@lru_cache(maxsize=1024)
def normalize_for_speech(text: str, language: str | None = None) -> Spoken:
    """The text to speak, "" when there is nothing to say, and where its characters come from. `language` is a BCP 47
    tag, None for English. Never raises."""
    spoken = without_markup(unchanged(text))
    tag = _known(language)
    if tag is not None:
        rules = _rules(tag)
        spoken = _apply(spoken, rules.always)
        if _DIGIT.search(spoken.text):
            spoken = _apply(spoken, rules.figures)
        spoken = _apply(spoken, rules.signs)
    spoken = tidy(spoken)
    return spoken if _WORD.search(spoken.text) else unchanged("")


def warm_up() -> None:
    """Make the rules of all languages ready, once: up to 25 ms for a language, which the event loop must not spend."""
    for tag in _LEXICONS:
        _rules(tag)


def _known(language: str | None) -> str | None:
    """The key of a language's lexicon; None for a language without one."""
    tag = (language or "en").lower().replace("_", "-")
    primary = tag.partition("-")[0]
    return tag if tag in _LEXICONS else primary if primary in _LEXICONS else None


@dataclass(frozen=True)
class _Rules:
    """What is done to every text, to one with figures, and at the end."""

    always: tuple[Rule, ...]
    figures: tuple[Rule, ...]
    signs: tuple[Rule, ...]


@cache
def _rules(tag: str) -> _Rules:
    lexicon = _LEXICONS[tag]
    return _Rules(
        (*address_rules(lexicon), *lexicon.own_rules, *_words(lexicon.abbreviations)),
        (
            Rule(_SMALL, lambda match: _RAISED[match.group()]),
            *date_rules(lexicon),
            *identifier_rules(lexicon),
            Rule(_LIST, lambda match: f"{cardinal(int(match[1]), lexicon.number_language)},"),
            range_rule(lexicon),
            *time_rules(lexicon),
            *amount_rules(lexicon),
            *code_rules(lexicon),
            *plain_rules(lexicon),
        ),
        (*((lexicon.acronyms,) if lexicon.acronyms else ()), _signs(lexicon.symbols)),
    )


def _words(abbreviations: Mapping[str, str]) -> tuple[Rule, ...]:
    """A full stop that also ends the text stays."""

    def said(match: re.Match[str]) -> str:
        ends = match.group().endswith(".") and match.end() == len(match.string)
        return abbreviations[match.group()] + ("." if ends else "")

    pattern = rf"(?<![\w@./-])(?:{_any_of(abbreviations).pattern})(?!\w)"
    return (Rule(re.compile(pattern), said),) if abbreviations else ()


def _signs(symbols: Mapping[str, str]) -> Rule:
    return Rule(_any_of(symbols), lambda match: f" {symbols[match.group()]} ")


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(sorted(map(re.escape, texts), key=len, reverse=True)))


def _apply(spoken: Spoken, rules: Iterable[Rule]) -> Spoken:
    for rule in rules:
        spoken = rewrite(spoken, rule.pattern, rule.replace)
    return spoken
