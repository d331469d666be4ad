"""Redaction of tool calls in a timeline: what is redacted in the transcript is also redacted in the arguments and the
results of tools, which repeat it in other words. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from calls.post_call.redaction.digit_lists import digit_runs, without_items
from calls.post_call.redaction.spoken_digits import LANGUAGES, number_words, tokenize
from storage.calls.calls import TranscriptItem

_RUN: Final = re.compile(r"(?<!\d)\d(?:[ .\-]?\d)+(?!\d)")
_MIN_DIGITS: Final = 3
"""Digits of a part of a redacted number that is redacted where it is repeated, such as a security code."""


def redact_tool_calls(
    timeline: Sequence[dict[str, Any]],
    transcript: Sequence[TranscriptItem],
    redacted: Sequence[TranscriptItem],
    label: str,
) -> list[dict[str, Any]]:
    """Returns the timeline with the digits that `redacted` no longer has, of `transcript`, replaced by `label` in the
    arguments and results of its tools; a number becomes null."""
    hidden = _HiddenDigits(transcript, redacted)
    if not hidden:
        return list(timeline)
    return [
        {**turn, "tools": [_redact_tool(tool, hidden, label) for tool in turn["tools"]]} if turn.get("tools") else turn
        for turn in timeline
    ]


class _HiddenDigits:
    """The digits of the redacted items, in any spoken form."""

    def __init__(self, transcript: Sequence[TranscriptItem], redacted: Sequence[TranscriptItem]) -> None:
        changed = [
            item["content"]
            for item, after in zip(transcript, redacted, strict=True)
            if item["content"] != after["content"]
        ]
        tokens = tokenize(enumerate(changed), number_words(*LANGUAGES))
        self._digits = "".join(token.characters for token in tokens if token.is_digits)
        self._whole = {text for text in changed if text.isdecimal()}

    def __bool__(self) -> bool:
        return bool(self._digits)

    def has(self, digits: str) -> bool:
        """True if these digits are of a redacted item: all of it, or at least `_MIN_DIGITS` of it."""
        return digits in self._whole or (len(digits) >= _MIN_DIGITS and digits in self._digits)


def _redact_tool(tool: Mapping[str, Any], hidden: _HiddenDigits, label: str) -> dict[str, Any]:
    def in_text(match: re.Match[str]) -> str:
        return label if hidden.has(re.sub(r"\D", "", match.group())) else match.group()

    changed = {name: _redact(tool.get(name), hidden, label, in_text) for name in ("arguments", "result")}
    return {**tool, **changed}


def _redact(value: Any, hidden: _HiddenDigits, label: str, in_text: Callable[[re.Match[str]], str]) -> Any:
    match value:
        case str() if hidden.has(value.strip()):
            return label
        case str():
            return _RUN.sub(in_text, value)
        case Mapping():
            return {name: _redact(each, hidden, label, in_text) for name, each in value.items()}
        case list():
            otherwise = partial(_redact, hidden=hidden, label=label, in_text=in_text)
            return without_items(value, _spread_digits(value, hidden), label, otherwise)
        case bool() | None:
            return value
        case int() | float() if math.isfinite(value) and hidden.has(str(abs(int(value)))):
            return None
        case _:
            return value


def _spread_digits(items: Sequence[Any], hidden: _HiddenDigits) -> set[int]:
    """Returns the positions of items that together are digits to be redacted."""
    found: set[int] = set()
    for first, digits in digit_runs(items):
        start = 0
        while start < len(digits):
            end = _end_of_hidden(digits, start, hidden)
            found.update(range(first + start, first + end))
            start = max(end, start + 1)
    return found


def _end_of_hidden(digits: Sequence[str], start: int, hidden: _HiddenDigits) -> int:
    """Returns the end of the longest run of items from `start` on whose digits are hidden; `start` if none are."""
    joined, found = "", start
    for end in range(start, len(digits)):
        joined += digits[end]
        if hidden.has(joined):
            found = end + 1
        elif len(joined) >= _MIN_DIGITS:
            break  # with more digits they are not hidden either
    return found
