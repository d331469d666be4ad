"""The vocabulary of the random-weight language models (`bench.models.random_gguf`): words of two syllables, each of
which is one token after a space."""

from __future__ import annotations

import random
from itertools import product
from typing import Final

SPACE: Final = "\u0120"
"""The character for a space in byte-level BPE."""
_VOWELS: Final = "aeiouyAEIOUY"
_CONSONANTS: Final = "bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ"


def syllables(count: int) -> list[str]:
    """The first `count` pairs of a consonant and a vowel. No other letters are merged, so that tokenization is
    unique."""
    found = [consonant + vowel for consonant, vowel in product(_CONSONANTS, _VOWELS)]
    return sorted(found, key=lambda syllable: sum(letter.isupper() for letter in syllable))[:count]


def words(count: int) -> list[str]:
    """All words of the first `count` syllables."""
    return [first + second for first, second in product(syllables(count), syllables(count))]


def sentence(seed: str, length: int) -> str:
    """`length` words that are in the vocabulary of all shapes; the same for the same seed."""
    drawn, known = random.Random(seed), syllables(100)
    return "".join(f" {drawn.choice(known)}{drawn.choice(known)}" for _ in range(length))
