"""A text under normalization, aligned with its original: each character keeps the place of its origin."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Inserted:
    """Inserted text; its origin is the character at index `at` of the text that is rewritten."""

    text: str
    at: int


Part: TypeAlias = Inserted | slice
"""A slice keeps its characters."""
Replacement: TypeAlias = str | Sequence[Part] | None
"""A string replaces the whole match; None leaves it unchanged."""


@dataclass(frozen=True)
class NormalizedText:
    """`source[i]` is the index in the original at which the origin of the character `text[i]` begins (ascending)."""

    text: str
    source: Sequence[int]

    def original_end(self, char_end: int, original: str) -> int | None:
        """The end in the original, without trailing white space, of the part that is spoken as `text[:char_end]`. None
        in the middle of a word of the original."""
        spoken, rest = self.text[:char_end].rstrip(), self.text[char_end:].lstrip()
        if not spoken:
            return None
        if not rest:
            return len(original.rstrip())
        next_word = self.source[len(self.text) - len(rest)]
        while next_word and not original[next_word - 1].isspace():
            next_word -= 1
        return len(original[:next_word].rstrip()) if self.source[len(spoken) - 1] < next_word else None


def unchanged(text: str) -> NormalizedText:
    """The text without a change."""
    return NormalizedText(text, range(len(text)))


def rewrite(
    normalized: NormalizedText, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], Replacement]
) -> NormalizedText:
    """Replaces every match. The parts of a replacement are in the order of their origin."""
    text, source = normalized.text, normalized.source
    pieces: list[str] = []
    origins: list[int] = []
    position = 0
    for match in pattern.finditer(text):
        replacement = replace(match)
        if replacement is None:
            continue
        if isinstance(replacement, str):
            replacement = (Inserted(replacement, match.start()),)
        for part in (slice(position, match.start()), *replacement):
            if isinstance(part, Inserted):
                pieces.append(part.text)
                origins.extend([source[part.at]] * len(part.text))
            else:
                pieces.append(text[part])
                origins.extend(source[part])
        position = match.end()
    if not pieces and position == 0:
        return normalized
    pieces.append(text[position:])
    origins.extend(source[position:])
    return NormalizedText("".join(pieces), origins)
