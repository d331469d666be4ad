"""Text normalization for speech: numbers in words, addresses and identifiers as they are read out, no markup. For
English, German, French, Spanish, Italian, Dutch and Portuguese; in other languages only markup and emoji are removed,
and the synthesizer reads the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final

from models.tts.text_normalization.addresses import address_rules
from models.tts.text_normalization.alignment import NormalizedText, rewrite, unchanged
from models.tts.text_normalization.amounts import amount_rules, number_rules, range_rule
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
from models.tts.text_normalization.markup import normalize_white_space, without_markup

__all__ = ["NormalizedText", "normalize_for_speech", "warm_up"]

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
_SUPERSCRIPTS: Final = dict(zip("⁰¹⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "014567890123456789", strict=True))
_SUPERSCRIPT: Final = re.compile(f"[{''.join(_SUPERSCRIPTS)}]")
_LIST_ITEM: Final = re.compile(r"(?m)^[ \t]*(\d{1,3})[.)](?=\s+[^\W\d])")
"""The number of a list item."""
_DIGIT: Final = re.compile(r"\d")
_WORD: Final = re.compile(r"[^\W_]")


@lru_cache(maxsize=1024)
def normalize_for_speech(text: str, language: str | None = None) -> NormalizedText:
    """The text to synthesize, "" for none, and the origin of its characters. `language` is a BCP 47 tag, None for
    English. Never raises."""
    normalized = without_markup(unchanged(text))
    tag = _lexicon_key(language)
    if tag is not None:
        rules = _rules(tag)
        normalized = _apply(normalized, rules.always)
        if _DIGIT.search(normalized.text):
            normalized = _apply(normalized, rules.numbers)
        normalized = _apply(normalized, rules.symbols)
    normalized = normalize_white_space(normalized)
    return normalized if _WORD.search(normalized.text) else unchanged("")


def warm_up() -> None:
    """Compile the rules of all languages, once: up to 25 ms for a language, which the event loop must not spend."""
    for tag in _LEXICONS:
        _rules(tag)


def _lexicon_key(language: str | None) -> str | None:
    """The key of a language's lexicon; None for a language without one."""
    tag = (language or "en").lower().replace("_", "-")
    primary = tag.partition("-")[0]
    return tag if tag in _LEXICONS else primary if primary in _LEXICONS else None


@dataclass(frozen=True)
class _Rules:
    """Rules for every text, for texts with digits, and for symbols at the end."""

    always: tuple[Rule, ...]
    numbers: tuple[Rule, ...]
    symbols: tuple[Rule, ...]


@cache
def _rules(tag: str) -> _Rules:
    lexicon = _LEXICONS[tag]
    return _Rules(
        (*address_rules(lexicon), *lexicon.extra_rules, *_abbreviation_rules(lexicon.abbreviations)),
        (
            Rule(_SUPERSCRIPT, lambda match: _SUPERSCRIPTS[match.group()]),
            *date_rules(lexicon),
            *identifier_rules(lexicon),
            Rule(_LIST_ITEM, lambda match: f"{cardinal(int(match[1]), lexicon.number_language)},"),
            range_rule(lexicon),
            *time_rules(lexicon),
            *amount_rules(lexicon),
            *code_rules(lexicon),
            *number_rules(lexicon),
        ),
        (*((lexicon.acronyms,) if lexicon.acronyms else ()), _symbol_rule(lexicon.symbols)),
    )


def _abbreviation_rules(abbreviations: Mapping[str, str]) -> tuple[Rule, ...]:
    """A full stop that also ends the text stays."""

    def expand(match: re.Match[str]) -> str:
        ends = match.group().endswith(".") and match.end() == len(match.string)
        return abbreviations[match.group()] + ("." if ends else "")

    pattern = rf"(?<![\w@./-])(?:{_any_of(abbreviations).pattern})(?!\w)"
    return (Rule(re.compile(pattern), expand),) if abbreviations else ()


def _symbol_rule(symbols: Mapping[str, str]) -> Rule:
    return Rule(_any_of(symbols), lambda match: f" {symbols[match.group()]} ")


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(sorted(map(re.escape, texts), key=len, reverse=True)))


def _apply(text: NormalizedText, rules: Iterable[Rule]) -> NormalizedText:
    for rule in rules:
        text = rewrite(text, rule.pattern, rule.replace)
    return text
