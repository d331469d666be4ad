"""The languages that have phrases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calls.answer_detection.phrases.dutch import DUTCH
from calls.answer_detection.phrases.english import ENGLISH
from calls.answer_detection.phrases.english_spotted import ENGLISH_SPOTTED
from calls.answer_detection.phrases.french import FRENCH
from calls.answer_detection.phrases.german import GERMAN
from calls.answer_detection.phrases.italian import ITALIAN
from calls.answer_detection.phrases.phrase_set import PhraseKind, PhraseSet
from calls.answer_detection.phrases.portuguese import PORTUGUESE
from calls.answer_detection.phrases.spanish import SPANISH

PHRASE_SETS: Final = {
    "en": ENGLISH,
    "de": GERMAN,
    "fr": FRENCH,
    "es": SPANISH,
    "it": ITALIAN,
    "nl": DUTCH,
    "pt": PORTUGUESE,
}
"""By primary language subtag."""


def spotted_phrases(language: str | None) -> Mapping[str, PhraseKind]:
    """The phrases to spot in speech of a BCP 47 tag, and what they prove; empty for most languages."""
    return ENGLISH_SPOTTED if phrase_set(language) is ENGLISH else {}


def phrase_set(language: str | None) -> PhraseSet | None:
    """The phrases of a BCP 47 tag; None for a language without phrases. None is English, as for a recognizer."""
    return PHRASE_SETS.get((language or "en").lower().split("-")[0])
