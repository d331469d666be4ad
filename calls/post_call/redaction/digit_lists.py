"""Numbers that are spread over the items of a list, as `["4", "1", ...]` or `[4, 1, ...]`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

_SEPARATORS: Final = re.compile(r"[ .\-]")


def digits_of_item(item: Any) -> str:
    """Returns the digits of an item that has nothing else but separators, "" of any other."""
    text = str(item) if isinstance(item, int) and not isinstance(item, bool) else item
    plain = _SEPARATORS.sub("", text) if isinstance(text, str) else ""
    return plain if plain.isdecimal() and plain.isascii() else ""


def digit_runs(items: Sequence[Any]) -> list[tuple[int, list[str]]]:
    """Returns the places of two or more items in a row that are digits: the position of the first, and the digits of
    each."""
    digits = [digits_of_item(each) for each in items]
    found, at = [], 0
    for is_run, grouped in groupby(digits, key=bool):
        run = list(grouped)
        if is_run and len(run) > 1:
            found.append((at, run))
        at += len(run)
    return found


def without_items(items: Sequence[Any], positions: set[int], label: str, otherwise: Callable[[Any], Any]) -> list[Any]:
    """Returns the list with texts at these positions replaced by `label` and numbers by None, and `otherwise` of the
    other items."""
    removed = {at: label if isinstance(items[at], str) else None for at in positions}
    return [removed[at] if at in removed else otherwise(each) for at, each in enumerate(items)]
