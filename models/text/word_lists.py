"""Word lists in code: one string, words between white space."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(text.split())
