"""IVR menus: which keys to press when a machine, or a caller, names them. English only."""

from __future__ import annotations

import re
from typing import Final

from models.rule_based.spoken_numbers import find_spoken_numbers
from models.text.bm25 import Bm25Index, tokens

_PRESS: Final = re.compile(r"\b(?:press|dial)\b")
_KEYS: Final = {"star": "*", "asterisk": "*", "pound": "#", "hash": "#"}
_FIRST_PURPOSE: Final = re.compile(r"\bfor\b|(?:^|[.,]\s*)to\b")
"""Before the first key: what each key is for is told before it, else behind it."""
_PURPOSE: Final = re.compile(r"\b(?:for|to)\b")


def keys_to_press(heard: str, system: str) -> str:
    """The keys that a machine's menu, or a caller, wants pressed; "" for none. Of several, those that the agent's
    prompt names, else those whose purpose fits the prompt best, else the first."""
    choices = _choices(heard)
    told = next((keys for _, keys in _choices(system.lower())), None)
    if not choices:
        return ""
    if any(keys == told for _, keys in choices):
        return told or ""
    best = Bm25Index([purpose for purpose, _ in choices]).search(system)
    return choices[best[0].index if best else 0][1]


def is_menu(heard: str) -> bool:
    """True if a machine talks: nobody waits for an answer then."""
    return bool(_choices(heard)) and _PURPOSE.search(heard) is not None


def _choices(heard: str) -> list[tuple[str, str]]:
    """What each key is for, and the key."""
    before, *parts = _PRESS.split(heard)
    purposes = [before, *parts] if _FIRST_PURPOSE.search(before) else parts
    found = [(purpose, _keys(tokens(part))) for purpose, part in zip(purposes, parts, strict=False)]
    return [(purpose, keys) for purpose, keys in found if keys]


def _keys(said: list[str]) -> str:
    """The keys at the beginning of the words."""
    keys, at = "", 0
    while at < len(said):
        run = next((number for number in find_spoken_numbers(said[at:]) if number.start == 0), None)
        if run is not None:
            keys, at = keys + run.identifier, at + run.end
        elif said[at] in _KEYS:
            keys, at = keys + _KEYS[said[at]], at + 1
        elif said[at] in ("the", "and", "then", "key", "number", "sign"):
            at += 1
        else:
            break
    return keys
