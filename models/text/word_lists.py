"""Word lists as they are written in the code: one string, words between white space."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(text.split())
