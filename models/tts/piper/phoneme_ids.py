"""The phoneme ids of a sentence for a Piper voice, as in its training.

Piper takes espeak-ng's phonemes and adds the punctuation that ends clauses as further phonemes
(https://github.com/OHF-Voice/piper1-gpl)."""

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
"""espeak-ng's marks around words in another language."""
_INNER_PUNCTUATION: Final = ",;:"
"""Punctuation within a sentence."""


@dataclass(frozen=True)
class Word:
    """A word of the speech: after the first `id_end` ids, `text[:char_end]` has been spoken."""

    char_end: int
    id_end: int


@dataclass(frozen=True)
class SentencePhonemes:
    """The phoneme ids of a sentence, the network's input for one run, and the ends of its words, both ascending."""

    ids: Sequence[int]
    words: Sequence[Word]


class PhonemeIds:
    """A voice's ids. `unknown`: phonemes without an id, which are left out, as Piper does."""

    def __init__(self, ids: Mapping[str, Sequence[int]], clusters: Collection[tuple[str, ...]] = ()) -> None:
        """`ids` contains `PAD`, `BEGIN` and `END`. `clusters`: sequences of phonemes that are one phoneme of the
        voice."""
        self._ids = ids
        self._clusters = sorted(("".join(cluster) for cluster in clusters), key=len, reverse=True)
        self.unknown: set[str] = set()

    def sentences(self, text: str, clauses: Sequence[Clause]) -> list[SentencePhonemes]:
        """The sentences of a text from all of its clauses, in order."""
        sentences: list[SentencePhonemes] = []
        ids, words, end = self._start_ids(), list[Word](), 0
        for clause in clauses:
            begin, end = end, end + len(clause.source)
            self._add(clause, text, begin, end, ids, words)
            if clause.ends_sentence:
                if words:
                    sentences.append(self._sentence(ids, words))
                ids, words = self._start_ids(), []
        if words:
            sentences.append(self._sentence(ids, words))
        return sentences

    def character_sentences(self, text: str) -> list[SentencePhonemes]:
        """The sentences of a text for a voice that is trained on characters."""
        ids, words = self._start_ids(), list[Word]()
        for token in re.finditer(r"\S+\s*", text):
            self._append(unicodedata.normalize("NFD", token.group()), ids)
            words.append(Word(len(token.group().rstrip()) + token.start(), len(ids)))
        return [self._sentence(ids, words)] if words else []

    def _start_ids(self) -> list[int]:
        return [*self._ids[BEGIN], *self._ids[PAD]]

    def _sentence(self, ids: list[int], words: list[Word]) -> SentencePhonemes:
        return SentencePhonemes((*ids, *self._ids[END]), tuple(words))

    def _add(self, clause: Clause, text: str, begin: int, end: int, ids: list[int], words: list[Word]) -> None:
        """Add a clause, whose source is `text[begin:end]`, to a sentence."""
        spoken = unicodedata.normalize("NFD", _LANGUAGE_SWITCH.sub("", clause.phonemes))
        ends = []
        for index, group in enumerate(spoken.split(" ")):
            self._append(group if not index else f" {group}", ids)
            ends.append(len(ids))
        self._append(
            f"{clause.punctuation} "
            if clause.punctuation and clause.punctuation in _INNER_PUNCTUATION
            else clause.punctuation,
            ids,
        )
        if spoken.strip():
            words.extend(_words(text, begin, end, ends))

    def _append(self, phonemes: str, ids: list[int]) -> None:
        for phoneme in self._merge_clusters(phonemes):
            if phoneme in self._ids:
                ids += (*self._ids[phoneme], *self._ids[PAD])
            else:
                self.unknown.add(phoneme)

    def _merge_clusters(self, phonemes: str) -> Iterator[str]:
        """The phonemes, each cluster as one, the longest first."""
        at = 0
        while at < len(phonemes):
            phoneme = next((each for each in self._clusters if phonemes.startswith(each, at)), phonemes[at])
            yield phoneme
            at += len(phoneme)


def _words(text: str, begin: int, end: int, ends: Sequence[int]) -> list[Word]:
    """The words of a clause. If espeak-ng's words are as many as the written ones, each has its own end; otherwise the
    clause is one word, whose time the caller may divide."""
    # The last character of the source belongs to the next clause.
    begin, stop = max(0, begin - 1), end if end >= len(text) else end - 1
    tokens = [
        match.end() + begin
        for match in re.finditer(r"\S+", text[begin:stop])
        if any(character.isalnum() for character in match.group())
    ]
    if len(tokens) == len(ends):
        return [Word(char_end, id_end) for char_end, id_end in zip(tokens, ends, strict=True)]
    return [Word(begin + len(text[begin:stop].rstrip()), ends[-1])]
