"""Lexical end-of-turn detection: rules on the last words. No model, no latency.

The silence has already been measured when this is asked; the words only decide whether it is a pause within a
sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from media.audio_port import Samples
from models.protocols import CostSource
from models.text.word_lists import word_set

NAME: Final = "lexical-end-of-turn"

_UNKNOWN: Final = 0.5
"""Without any words."""
INCOMPLETE: Final = 0.03
"""The last word cannot end a sentence: below every useful threshold."""
_LIKELY_INCOMPLETE: Final = 0.3
"""The last word rarely ends a sentence."""
_LIKELY_COMPLETE: Final = 0.75
COMPLETE: Final = 0.95
"""A phrase that is complete in itself."""

_INCOMPLETE_WORDS: Final[dict[str, frozenset[str]]] = {
    "en": word_set(
        "a an the and or but because if so um uh er hmm my your his our their to of from at into whether "
        "very quite i'd i'm we're i'll let's which who's what's where's than mister"
    ),
    "de": word_set(
        "der die das den dem des ein eine einen einem einer und oder aber weil wenn dass ob äh ähm hm mein meine "
        "meinen ihr ihre zu von aus im am zum zur für mit sehr als ich"
    ),
    "fr": word_set(
        "le la les un une des du de et ou mais parce que si euh hum mon ma mes votre vos à au aux pour avec dans "
        "très je qui"
    ),
    "es": word_set(
        "el la los las un una unos unas y o pero porque si eh em mi mis su sus de del al a para con en muy que"
    ),
}
_LIKELY_INCOMPLETE_WORDS: Final[dict[str, frozenset[str]]] = {
    "en": word_set("is are was were i we you with for in on about can could would will do does have has like"),
    "de": word_set("ist sind war hat haben kann können möchte will in an auf bei über"),
    "fr": word_set("est sont était a ai avez peut peux voudrais vais en sur chez"),
    "es": word_set("es son está ha tengo tiene puedo puede quiero quisiera sobre"),
}
_COMPLETE_PHRASES: Final[dict[str, tuple[str, ...]]] = {
    "en": (
        *("yes", "no", "yeah", "okay", "sure", "please", "thanks", "thank you", "goodbye", "bye", "hello", "hi"),
        *("that's all", "that is all", "that's it", "never mind", "of course"),
    ),
    "de": ("ja", "nein", "okay", "bitte", "danke", "tschüss", "auf wiederhören", "hallo", "das ist alles", "genau"),
    "fr": ("oui", "non", "d'accord", "merci", "au revoir", "bonjour", "allô", "c'est tout", "s'il vous plaît"),
    "es": ("sí", "no", "vale", "gracias", "adiós", "hola", "por favor", "eso es todo", "claro"),
}
_QUESTION_WORDS: Final = word_set("what where when who why how which can could do does is are will would")


class LexicalEndOfTurn:
    """Rules for English, German, French and Spanish; in other languages only the presence of words counts."""

    cost_source: CostSource = "negligible"

    name = NAME
    latency_ms = 0

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> LexicalStream:
        """A stream that answers at once; see `EndOfTurn`."""
        return LexicalStream(self, language, partial)

    def probability(self, partial: str, language: str | None) -> float:
        """Probability 0..1 that the turn is over; language None is English."""
        spoken = partial.lower().replace("?", " ").replace(".", " ").replace(",", " ").split()
        if not spoken:
            return _UNKNOWN
        tag = (language or "en").lower().split("-")[0]
        if _is_complete(spoken, tag):
            return COMPLETE
        if spoken[-1] in _INCOMPLETE_WORDS.get(tag, frozenset()):
            return INCOMPLETE
        if spoken[-1] in _LIKELY_INCOMPLETE_WORDS.get(tag, frozenset()) and not _is_question(spoken, tag):
            return _LIKELY_INCOMPLETE
        return _LIKELY_COMPLETE


@dataclass(frozen=True)
class LexicalStream:
    """The stream of one call; see `EndOfTurnStream`."""

    rules: LexicalEndOfTurn
    language: str | None
    partial: Callable[[], str]

    def feed(self, samples: Samples) -> None:
        """No effect: audio is not used."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Answer at once; None while there are no words."""
        text = self.partial()
        answer(self.rules.probability(text, self.language) if text else None)

    def reset(self) -> None:
        """No effect."""

    def close(self) -> None:
        """No effect."""


def _is_complete(spoken: list[str], tag: str) -> bool:
    """True if the last words, or all of them, are a complete phrase."""
    tail = " " + " ".join(spoken[-3:])
    return any(tail.endswith(" " + phrase) for phrase in _COMPLETE_PHRASES.get(tag, ()))


def _is_question(spoken: list[str], tag: str) -> bool:
    """True for an English question, which may end with a preposition or an auxiliary: "what is it about", "how are
    you"."""
    return tag == "en" and len(spoken) > 2 and spoken[0] in _QUESTION_WORDS
