"""Finds tool calls in what a model writes, while it writes.

Models write them in one of a few ways: between tags (Qwen, Hermes), after a mark of its own or as the whole answer
(Llama 3, Mistral, and most others that were asked for JSON). What may become a call is held back until that is certain,
for a caller must never hear JSON; all else goes through at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import structlog

from models.protocols import AnswerPart, TextDelta, ToolCall

_OPENS: Final = {"<tool_call>": "</tool_call>", "<think>": "</think>", "<|python_tag|>": "", "[TOOL_CALLS]": ""}
"""What begins something that is not said, and what ends it; "": the answer's end."""
_FENCE: Final = re.compile(r"^\s*```(?:json)?\s*(.*?)\s*(?:```\s*)?$", re.DOTALL)
_log = structlog.get_logger()


class ToolCallParser:
    """One answer's text, piece by piece. `known` are the names of the tools; `new_id` makes ids for calls."""

    def __init__(self, known: Collection[str], new_id: Callable[[], str]) -> None:
        self._known = known
        self._new_id = new_id
        self._held = ""
        self._closes: str | None = None
        self._opened = ""
        self._said = False
        self._trim = True  # blanks before the first words are not said

    def feed(self, text: str) -> Iterator[AnswerPart]:
        """The parts that are certain now."""
        self._held += text
        while self._closes is not None or self._held:
            before = len(self._held), self._closes
            yield from self._inside() if self._closes is not None else self._outside()
            if (len(self._held), self._closes) == before:
                return

    def finish(self) -> Iterator[AnswerPart]:
        """The answer has ended: what was held back is a call or text after all."""
        held, self._held = self._held, ""
        if self._closes is not None:
            opened, self._closes = self._opened, None
            if opened != "<think>":
                yield from self._calls(held, certain=True)
        elif not self._said and _may_be_json(held):
            yield from self._calls(held, certain=False)
        else:
            yield from self._say(held)

    def _outside(self) -> Iterator[AnswerPart]:
        """Say what is surely no beginning of a call."""
        if not self._said and self._known and _may_be_json(self._held):
            return
        opens = [(self._held.find(mark), mark) for mark in _OPENS if mark in self._held]
        if opens:
            place, mark = min(opens)
            before, self._held = self._held[:place], self._held[place + len(mark) :]
            self._opened, self._closes = mark, _OPENS[mark]
            yield from self._say(before.rstrip("\n"))
            return
        certain = len(self._held[: len(self._held) - _begun(self._held)].rstrip("\n"))
        before, self._held = self._held[:certain], self._held[certain:]
        yield from self._say(before)

    def _inside(self) -> Iterator[AnswerPart]:
        """Wait for the closing mark."""
        closes = self._closes
        if not closes or closes not in self._held:
            return
        inside, self._held = self._held.split(closes, 1)
        opened, self._closes = self._opened, None
        self._trim = True
        if opened != "<think>":
            yield from self._calls(inside, certain=True)

    def _say(self, text: str) -> Iterator[AnswerPart]:
        if self._trim:
            text = text.lstrip()
        if text:
            self._said, self._trim = True, False
            yield TextDelta(text)

    def _calls(self, text: str, *, certain: bool) -> Iterator[AnswerPart]:
        """The calls that a piece of JSON is. With `certain` it is one for sure: broken, it is dropped. Else it is text
        unless it names a tool that there is."""
        if (fenced := _FENCE.match(text)) is not None:
            text = fenced[1]
        calls = [call for value in _values(text) for call in _calls_in(value)]
        if not certain and not (calls and all(name in self._known for name, _ in calls)):
            yield from self._say(text)
            return
        if not calls:
            _log.warning("tool_call.broken", characters=len(text))
        for name, arguments in calls:
            yield ToolCall(self._new_id(), name, arguments)


def _begun(text: str) -> int:
    """How many of the last characters may be the beginning of a mark."""
    most = max(map(len, _OPENS)) - 1
    for length in range(min(most, len(text)), 0, -1):
        if any(mark.startswith(text[-length:]) for mark in _OPENS):
            return length
    return 0


def _may_be_json(text: str) -> bool:
    """Whether an answer that begins like this may be nothing but JSON."""
    text = text.lstrip()
    if text.startswith(tuple(_OPENS)):
        return False
    return not text or text[0] in "{[" or text.startswith("```") or "```".startswith(text)


def _values(text: str) -> list[Any]:
    """The JSON values in a text, one after the other, whatever stands between them; [] when one of them is broken."""
    decoder, values, place = json.JSONDecoder(strict=False), [], 0
    while (found := re.compile(r"[\[{]").search(text, place)) is not None:
        try:
            value, place = decoder.raw_decode(text, found.start())
        except ValueError:
            return []
        values.append(value)
    return values


def _calls_in(value: Any) -> list[tuple[str, str]]:
    """Name and arguments of each call that a value tells."""
    if isinstance(value, list):
        return [call for each in value for call in _calls_in(each)]
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name") or value.get("function")
    if not isinstance(name, str):
        return []
    arguments: Any = next((value[key] for key in ("arguments", "parameters") if key in value), {})
    return [(name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))]
