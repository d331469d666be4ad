"""IVR menus: finds the DTMF keys that an announcement, or a caller, asks to press. English only."""

from __future__ import annotations

import re
from typing import Final

from models.rule_based.spoken_numbers import find_spoken_numbers
from models.text.bm25 import Bm25Index, tokenize

_PRESS: Final = re.compile(r"\b(?:press|dial)\b")
_KEYS: Final = {"star": "*", "asterisk": "*", "pound": "#", "hash": "#"}
_FIRST_PURPOSE: Final = re.compile(r"\bfor\b|(?:^|[.,]\s*)to\b")
"""Found before the first key if the menu names each purpose before its key, and not after it."""
_PURPOSE: Final = re.compile(r"\b(?:for|to)\b")


def keys_to_press(utterance: str, system_prompt: str) -> str:
    """The DTMF keys to press, "" for none. Of several choices: the keys that the agent's prompt names, else those whose
    purpose fits the prompt best, else the first."""
    choices = _choices(utterance)
    prompt_keys = next((keys for _, keys in _choices(system_prompt.lower())), None)
    if not choices:
        return ""
    if any(keys == prompt_keys for _, keys in choices):
        return prompt_keys or ""
    best = Bm25Index([purpose for purpose, _ in choices]).search(system_prompt)
    return choices[best[0].index if best else 0][1]


def is_menu(utterance: str) -> bool:
    """True for an IVR menu, which waits for keys and not for speech."""
    return bool(_choices(utterance)) and _PURPOSE.search(utterance) is not None


def _choices(utterance: str) -> list[tuple[str, str]]:
    """The purpose of each choice, and its keys."""
    before, *parts = _PRESS.split(utterance)
    purposes = [before, *parts] if _FIRST_PURPOSE.search(before) else parts
    found = [(purpose, _keys_at_start(tokenize(part))) for purpose, part in zip(purposes, parts, strict=False)]
    return [(purpose, keys) for purpose, keys in found if keys]


def _keys_at_start(tokens_left: list[str]) -> str:
    """The keys that the first words spell."""
    keys, at = "", 0
    while at < len(tokens_left):
        run = next((number for number in find_spoken_numbers(tokens_left[at:]) if number.start == 0), None)
        if run is not None:
            keys, at = keys + run.identifier, at + run.end
        elif tokens_left[at] in _KEYS:
            keys, at = keys + _KEYS[tokens_left[at]], at + 1
        elif tokens_left[at] in ("the", "and", "then", "key", "number", "sign"):
            at += 1
        else:
            break
    return keys
