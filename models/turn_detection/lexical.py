"""End of turn by the last words: rules for whether more is coming. No model, no waiting.

Silence has been measured already when this is asked; the words only say whether the pause is one in the middle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from media.audio_port import Samples
from models.protocols import CostSource
from models.text.word_lists import words

NAME: Final = "lexical-end-of-turn"

_UNKNOWN: Final = 0.5
"""Nothing recognized yet."""
DANGLING: Final = 0.03
"""The last word cannot end a sentence: under every useful threshold."""
_LEANING: Final = 0.3
"""The last word seldom ends a sentence."""
_PLAIN: Final = 0.75
COMPLETE: Final = 0.95
"""A phrase that stands for itself."""

_DANGLING_WORDS: Final[dict[str, frozenset[str]]] = {
    "en": words(
        "a an the and or but because if so um uh er hmm my your his our their to of from at into whether "
        "very quite i'd i'm we're i'll let's which who's what's where's than mister"
    ),
    "de": words(
        "der die das den dem des ein eine einen einem einer und oder aber weil wenn dass ob äh ähm hm mein meine "
        "meinen ihr ihre zu von aus im am zum zur für mit sehr als ich"
    ),
    "fr": words(
        "le la les un une des du de et ou mais parce que si euh hum mon ma mes votre vos à au aux pour avec dans "
        "très je qui"
    ),
    "es": words(
        "el la los las un una unos unas y o pero porque si eh em mi mis su sus de del al a para con en muy que"
    ),
}
_LEANING_WORDS: Final[dict[str, frozenset[str]]] = {
    "en": words("is are was were i we you with for in on about can could would will do does have has like"),
    "de": words("ist sind war hat haben kann können möchte will in an auf bei über"),
    "fr": words("est sont était a ai avez peut peux voudrais vais en sur chez"),
    "es": words("es son está ha tengo tiene puedo puede quiero quisiera sobre"),
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
_QUESTIONS: Final = words("what where when who why how which can could do does is are will would")


class LexicalEndOfTurn:
    """Rules for English, German, French and Spanish; another language is judged by length alone."""

    cost_source: CostSource = "negligible"

    name = NAME
    latency_ms = 0

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> LexicalStream:
        """A stream that answers at once; see `EndOfTurn`."""
        return LexicalStream(self, language, partial)

    def probability(self, partial: str, language: str | None) -> float:
        """Probability 0..1 that the turn is over; a missing language means English."""
        heard = partial.lower().replace("?", " ").replace(".", " ").replace(",", " ").split()
        if not heard:
            return _UNKNOWN
        tag = (language or "en").lower().split("-")[0]
        if _is_complete(heard, tag):
            return COMPLETE
        if heard[-1] in _DANGLING_WORDS.get(tag, frozenset()):
            return DANGLING
        if heard[-1] in _LEANING_WORDS.get(tag, frozenset()) and not _is_question(heard, tag):
            return _LEANING
        return _PLAIN


@dataclass(frozen=True)
class LexicalStream:
    """One call's words; see `EndOfTurnStream`."""

    rules: LexicalEndOfTurn
    language: str | None
    partial: Callable[[], str]

    def feed(self, samples: Samples) -> None:
        """Sound says nothing here."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Answer at once; None while there are no words."""
        text = self.partial()
        answer(self.rules.probability(text, self.language) if text else None)

    def reset(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to free."""


def _is_complete(heard: list[str], tag: str) -> bool:
    """True if the last words, or all of them, are a phrase that stands for itself."""
    tail = " " + " ".join(heard[-3:])
    return any(tail.endswith(" " + phrase) for phrase in _COMPLETE_PHRASES.get(tag, ()))


def _is_question(heard: list[str], tag: str) -> bool:
    """An English question may end with a preposition or an auxiliary: "what is it about", "how are you"."""
    return tag == "en" and len(heard) > 2 and heard[0] in _QUESTIONS
