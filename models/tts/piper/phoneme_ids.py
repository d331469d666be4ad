"""The phoneme ids that a Piper voice takes for a sentence, as in its training.

Piper takes the phonemes that espeak-ng finds and keeps the punctuation that ends clauses as if it were phonemes
(https://github.com/OHF-Voice/piper1-gpl).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.tts.piper.phonemizer import Clause

PAD: Final = "_"
BEGIN: Final = "^"
END: Final = "$"
_LANGUAGE_SWITCH: Final = re.compile(r"\([^)]+\)")
"""espeak-ng's marks around words that it reads as another language's."""
_WITHIN: Final = ",;:"
"""Signs within a sentence."""


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

    def __init__(self, ids: Mapping[str, Sequence[int]], clusters: Collection[tuple[str, ...]] = ()) -> None:
        """`ids` has `PAD`, `BEGIN` and `END`. `clusters` are rows of phonemes that are one phoneme of the voice."""
        self._ids = ids
        self._clusters = sorted(("".join(cluster) for cluster in clusters), key=len, reverse=True)
        self.unknown: set[str] = set()

    def sentences(self, text: str, clauses: Sequence[Clause]) -> list[Sentence]:
        """The sentences of a text. `clauses` are its clauses, all of them in order."""
        sentences: list[Sentence] = []
        ids, words, read = self._begun(), list[Word](), 0
        for clause in clauses:
            begin, read = read, read + len(clause.read)
            self._add(clause, text, begin, read, ids, words)
            if clause.ends_sentence:
                if words:
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

    def _add(self, clause: Clause, text: str, begin: int, read: int, ids: list[int], words: list[Word]) -> None:
        """Add a clause, which was read from `text[begin:read]`, to a sentence."""
        spoken = unicodedata.normalize("NFD", _LANGUAGE_SWITCH.sub("", clause.phonemes))
        ends = []
        for place, group in enumerate(spoken.split(" ")):
            self._append(group if not place else f" {group}", ids)
            ends.append(len(ids))
        self._append(f"{clause.sign} " if clause.sign and clause.sign in _WITHIN else clause.sign, ids)
        if spoken.strip():
            words.extend(_words(text, begin, read, ends))

    def _append(self, phonemes: str, ids: list[int]) -> None:
        for phoneme in self._merged(phonemes):
            if phoneme in self._ids:
                ids += (*self._ids[phoneme], *self._ids[PAD])
            else:
                self.unknown.add(phoneme)

    def _merged(self, phonemes: str) -> Iterator[str]:
        """The phonemes, each cluster as one, the longest first."""
        at = 0
        while at < len(phonemes):
            phoneme = next((each for each in self._clusters if phonemes.startswith(each, at)), phonemes[at])
            yield phoneme
            at += len(phoneme)


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
