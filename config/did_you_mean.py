"""Suggestions for names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, existing: Iterable[str]) -> str:
    """Returns `; did you mean X?` with the most similar existing name, compared without case; empty if none is
    similar."""
    by_folded = {each.casefold(): each for each in existing}
    similar = get_close_matches(name.casefold(), by_folded, 1)
    return f"; did you mean {by_folded[similar[0]]}?" if similar else ""
