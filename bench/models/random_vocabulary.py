"""The words that the models of random weights know (`model_shapes`): two syllables each, and one token when a space
stands before them."""

from __future__ import annotations

import random
from itertools import product
from typing import Final

SPACE: Final = "\u0120"
"""How byte-level BPE writes a space."""
_VOWELS: Final = "aeiouyAEIOUY"
_CONSONANTS: Final = "bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ"


def syllables(count: int) -> list[str]:
    """A consonant and a vowel: no other two letters ever merge, so that each word is read in one way only."""
    found = [consonant + vowel for consonant, vowel in product(_CONSONANTS, _VOWELS)]
    return sorted(found, key=lambda syllable: sum(letter.isupper() for letter in syllable))[:count]


def words(count: int) -> list[str]:
    """All that can be said with so many syllables."""
    return [first + second for first, second in product(syllables(count), syllables(count))]


def sentence(seed: str, length: int) -> str:
    """So many words that all shapes know, the same for the same seed."""
    drawn, known = random.Random(seed), syllables(100)
    return "".join(f" {drawn.choice(known)}{drawn.choice(known)}" for _ in range(length))
