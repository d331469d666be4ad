"""A text under normalization, and where each of its characters comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Said:
    """Words that stand for what begins `at` this character of the text that is rewritten."""

    text: str
    at: int


Part: TypeAlias = Said | slice
"""A slice keeps its characters."""
Replacement: TypeAlias = str | Sequence[Part] | None
"""A string stands for the whole match; None leaves it as it is."""


@dataclass(frozen=True)
class Spoken:
    """`text` is to be spoken; `source[i]` is the place in the original where the character `text[i]`, or what it stands
    for, begins (ascending)."""

    text: str
    source: Sequence[int]

    def original_end(self, char_end: int, original: str) -> int | None:
        """How far the original has been said once `text[:char_end]` was spoken, without white space behind it. None in
        the middle of a word of the original."""
        said, rest = self.text[:char_end].rstrip(), self.text[char_end:].lstrip()
        if not said:
            return None
        if not rest:
            return len(original.rstrip())
        next_word = self.source[len(self.text) - len(rest)]
        while next_word and not original[next_word - 1].isspace():
            next_word -= 1
        return len(original[:next_word].rstrip()) if self.source[len(said) - 1] < next_word else None


def unchanged(text: str) -> Spoken:
    """The text as it is."""
    return Spoken(text, range(len(text)))


def rewrite(spoken: Spoken, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], Replacement]) -> Spoken:
    """Every match replaced. The parts of a replacement come in the order of their places."""
    text, source = spoken.text, spoken.source
    pieces: list[str] = []
    places: list[int] = []
    position = 0
    for match in pattern.finditer(text):
        replacement = replace(match)
        if replacement is None:
            continue
        if isinstance(replacement, str):
            replacement = (Said(replacement, match.start()),)
        for part in (slice(position, match.start()), *replacement):
            if isinstance(part, Said):
                pieces.append(part.text)
                places.extend([source[part.at]] * len(part.text))
            else:
                pieces.append(text[part])
                places.extend(source[part])
        position = match.end()
    if not pieces and position == 0:
        return spoken
    pieces.append(text[position:])
    places.extend(source[position:])
    return Spoken("".join(pieces), places)
