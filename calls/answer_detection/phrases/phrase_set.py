"""The phrases of one language, and matching them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

_APOSTROPHES: Final = re.compile(r"['\u2018\u2019`]")
_NOISE_MARK: Final = re.compile(r"\[[^\]]*\]|<[^>]*>|\+\+[^+]*\+\+|\([^)]*\)")
"""Recognizers' notations of noise: [NOISE], <sil>, ++COUGH++, (coughs)."""
_NO_WORD: Final = re.compile(r"[\W_]+")


class PhraseKind(StrEnum):
    """What a phrase is evidence of."""

    MAILBOX_UNAVAILABLE = "mailbox_unavailable"
    UNREACHABLE = "unreachable"
    """Nobody can be reached there now: a mailbox may follow, or nothing."""
    CALL_SCREENING = "call_screening"
    VOICEMAIL = "voicemail"
    VOICEMAIL_HINT = "voicemail_hint"
    """People say it too: two different ones are needed, and none of `LIVE`."""
    MENU = "menu"
    HOLD_QUEUE = "hold_queue"
    HOLD_HINT = "hold_hint"
    """People say it too: two different ones are needed."""
    LIVE = "live"
    """Said by a person who listens: a question to the caller, an offer, a promise."""
    GREETING = "greeting"
    """The words of a short answer: "hello"."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase in a text: its kind, its rule's number within the kind, and its words."""

    kind: PhraseKind
    rule: int
    words: str


@dataclass(frozen=True)
class PhraseSet:
    """Regular expressions over normalized text (see `normalize`), each matched from the beginning of a word to the end
    of one. Alternatives for one thing are one expression: two hints must be two things."""

    mailbox_unavailable: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    call_screening: tuple[str, ...] = ()
    voicemail: tuple[str, ...] = ()
    voicemail_hint: tuple[str, ...] = ()
    menu: tuple[str, ...] = ()
    hold_queue: tuple[str, ...] = ()
    hold_hint: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    greeting: tuple[str, ...] = ()
    _compiled: dict[PhraseKind, tuple[re.Pattern[str], ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = {
            PhraseKind(each.name): tuple(re.compile(rf"\b(?:{rule})\b") for rule in getattr(self, each.name))
            for each in fields(self)
            if each.init
        }
        object.__setattr__(self, "_compiled", compiled)

    def find(self, text: str) -> Iterator[Phrase]:
        """The phrases in a normalized text; each rule once."""
        for kind, rules in self._compiled.items():
            for number, rule in enumerate(rules):
                if match := rule.search(text):
                    yield Phrase(kind, number, match.group())


def normalize(text: str) -> str:
    """Lower case, without accents and noise marks; one space instead of everything between words. An apostrophe is a
    space too: "l'appel" is "l appel", "can't" is "can t"."""
    plain = _APOSTROPHES.sub(" ", _NOISE_MARK.sub(" ", text)).casefold()
    letters = "".join(c for c in unicodedata.normalize("NFD", plain) if not unicodedata.combining(c))
    return _NO_WORD.sub(" ", letters).strip()
