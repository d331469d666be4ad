"""Word lists in source code: one string, words separated by white space."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The set of words in a string."""
    return frozenset(text.split())
