"""What a Piper voice reads: the ids of a sentence's phonemes, as in its training.

Piper takes the phonemes that espeak-ng finds and keeps the punctuation that ends clauses as if it were phonemes
(https://github.com/OHF-Voice/piper1-gpl). espeak-ng 1.51, which Debian brings, finds those that the published voices
were trained with; newer ones put glides between vowels that these voices never learned.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.espeak_processes import Clause

PAD: Final = "_"
BEGIN: Final = "^"
END: Final = "$"
_LANGUAGE_SWITCH: Final = re.compile(r"\([^)]+\)")
"""espeak-ng's marks around words that it reads as another language's."""
_TERMINATORS: Final[Mapping[str, str]] = {
    **dict.fromkeys(".\u3002\uff0e\u0964\u0589\u06d4\u1362", "."),
    **dict.fromkeys("?\uff1f\u061f\u037e\u1367", "?"),
    **dict.fromkeys("!\uff01\u055c", "!"),
    **dict.fromkeys(",\uff0c\u3001\u060c\u1363", ","),
    **dict.fromkeys(";\uff1b\u061b\u1364\u2013\u2014", ";"),
    **dict.fromkeys(":\uff1a\u1365", ":"),
}
"""What ends a clause, as Piper writes it."""
_SENTENCE_ENDS: Final = ".?!"
_WITHIN: Final = ",;:"
_BEHIND: Final = re.compile("[\\s\"'\u2019\u201d\u201c\u201e\u00ab\u00bb()\\[\\]*_\u00bf\u00a1]")
"""What may stand behind the punctuation that ends a clause, before the next clause."""


@dataclass(frozen=True)
class Word:
    """Something that is heard as one word: `text[:char_end]` of the clauses' text has been heard once the first
    `id_end` ids were spoken."""

    char_end: int
    id_end: int


@dataclass(frozen=True)
class Sentence:
    """What the network takes in one go, and where words end in it, both ascending."""

    ids: Sequence[int]
    words: Sequence[Word]


class PhonemeIds:
    """A voice's ids. `unknown` are phonemes that it has none for: they are left out, as Piper does."""

    def __init__(self, ids: Mapping[str, Sequence[int]]) -> None:
        """`ids` has `PAD`, `BEGIN` and `END`."""
        self._ids = ids
        self.unknown: set[str] = set()

    def sentences(self, text: str, clauses: Sequence[Clause]) -> list[Sentence]:
        """The sentences of a text. `clauses` are its clauses, all of them in order."""
        sentences: list[Sentence] = []
        ids, words, read = self._begun(), list[Word](), 0
        for clause in clauses:
            begin, read = read, read + len(clause.read)
            sign = terminator(clause.read, is_last=read >= len(text))
            self._add(clause, sign, text, begin, read, ids, words)
            if sign and sign in _SENTENCE_ENDS and words:
                sentences.append(self._ended(ids, words))
                ids, words = self._begun(), []
        if words:
            sentences.append(self._ended(ids, words))
        return sentences

    def spelled(self, text: str) -> list[Sentence]:
        """The same of a voice that reads characters."""
        ids, words = self._begun(), list[Word]()
        for token in re.finditer(r"\S+\s*", text):
            self._append(unicodedata.normalize("NFD", token.group()), ids)
            words.append(Word(len(token.group().rstrip()) + token.start(), len(ids)))
        return [self._ended(ids, words)] if words else []

    def _begun(self) -> list[int]:
        return [*self._ids[BEGIN], *self._ids[PAD]]

    def _ended(self, ids: list[int], words: list[Word]) -> Sentence:
        return Sentence((*ids, *self._ids[END]), tuple(words))

    def _add(
        self, clause: Clause, sign: str, text: str, begin: int, read: int, ids: list[int], words: list[Word]
    ) -> None:
        """Add a clause, which was read from `text[begin:read]`, to a sentence."""
        spoken = unicodedata.normalize("NFD", _LANGUAGE_SWITCH.sub("", clause.phonemes))
        ends = []
        for place, group in enumerate(spoken.split(" ")):
            self._append(group if not place else f" {group}", ids)
            ends.append(len(ids))
        self._append(f"{sign} " if sign in _WITHIN and sign else sign, ids)
        if spoken.strip():
            words.extend(_words(text, begin, read, ends))

    def _append(self, phonemes: str, ids: list[int]) -> None:
        for phoneme in phonemes:
            if phoneme in self._ids:
                ids += (*self._ids[phoneme], *self._ids[PAD])
            else:
                self.unknown.add(phoneme)


def terminator(read: str, *, is_last: bool) -> str:
    """The sign that ended a clause, as Piper writes it, from the text that espeak-ng read for it, "" for none. Of
    three dots or more espeak-ng makes a pause, not an end."""
    end = len(read) if is_last else len(read) - 1  # One character of the next clause was read too.
    while end and _BEHIND.fullmatch(read[end - 1]):
        end -= 1
    if not is_last and not (end and read[end - 1] in _TERMINATORS):
        return _terminator_within(read)
    if read[:end].endswith(("...", "\u2026")):
        return ""
    while end > 1 and read[end - 2] in "?!":  # Of several the first counts.
        end -= 1
    return _TERMINATORS.get(read[end - 1], "") if end else ""


def _terminator_within(read: str) -> str:
    """Of a clause behind which more than a character was read: the last sign that white space follows."""
    signs = [read[at] for at in range(len(read) - 1) if read[at] in _TERMINATORS and _BEHIND.fullmatch(read[at + 1])]
    return _TERMINATORS[signs[-1]] if signs else ""


def _words(text: str, begin: int, read: int, ends: Sequence[int]) -> list[Word]:
    """The words of a clause. Where espeak-ng speaks as many as are written, each has its own; else the clause is one
    piece, whose inside the caller may divide."""
    # The last character that was read belongs to the next clause.
    begin, stop = max(0, begin - 1), read if read >= len(text) else read - 1
    tokens = [
        match.end() + begin
        for match in re.finditer(r"\S+", text[begin:stop])
        if any(character.isalnum() for character in match.group())
    ]
    if len(tokens) == len(ends):
        return [Word(end, id_end) for end, id_end in zip(tokens, ends, strict=True)]
    return [Word(begin + len(text[begin:stop].rstrip()), ends[-1])]
