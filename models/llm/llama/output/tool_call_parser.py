"""Parses tool calls out of a model's output while it is written.

Models write them in many ways: between tags (Qwen, Hermes), after a mark of their own or as the whole answer (Llama 3,
Mistral, and most others that were asked for JSON). What may become a call is held back until that is certain, for a
caller must never hear JSON, nor what a model thinks; all else goes through at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from models.llm.llama.output.tool_call_formats import Call, Tools, call_of, calls_in, python_names
from models.llm.llama.special_tokens import OPENING_TAGS, STANDALONE_TAGS, THINKING_ENDS, THINKING_TAGS, TO_THE_END
from models.protocols import LlmOutput, TextDelta, ToolCall

_FENCE: Final = "```"
_MARKS: Final = sorted((*OPENING_TAGS, *STANDALONE_TAGS, _FENCE), key=len, reverse=True)
_NOTABLE: Final = re.compile("|".join([*map(re.escape, _MARKS), r"[\[{]"]))
_BEGINS_JSON: Final = re.compile(r"""\{\s*["'}]|\[\s*\{\s*["'}]|\[\s*\[""")
_MAY_BEGIN_JSON: Final = re.compile(r"[\[{]\s*\{?\s*")
_BETWEEN_CALLS: Final = " \t\r\n;,"
_log = structlog.get_logger()


class ToolCallParser:
    """One answer's text, piece by piece. `tools` are the parameters of those that there are; `new_id` makes ids for
    calls."""

    def __init__(self, tools: Tools, new_id: Callable[[], str]) -> None:
        self._tools = tools
        self._new_id = new_id
        self._python = python_names(tools)
        self._held = ""
        self._opened: str | None = None  # the mark, "" in a call as Python writes it
        self._said = False
        self._trim = " \t\r\n"  # what is not said before the first words, and after a call

    @property
    def thinking_end(self) -> str | None:
        """What would end the thought that is being written; None: it does not think."""
        return THINKING_ENDS.get(self._opened or "")

    def feed(self, text: str) -> Iterator[LlmOutput]:
        """The parts that are certain now."""
        self._held += text
        before = None
        while self._held and (len(self._held), self._opened) != before:
            before = len(self._held), self._opened
            yield from self._inside() if self._opened is not None else self._outside()

    def finish(self) -> Iterator[LlmOutput]:
        """The answer has ended: what was held back is a call, or text after all."""
        held, self._held = self._held, ""
        opened, self._opened = self._opened, None
        if opened is not None:
            yield from self._close(opened, held)
        elif _BEGINS_JSON.match(held):
            yield from self._use(calls_in(held, self._tools), held)
        elif not (
            self._trim and _begun(held) == len(held.lstrip())
        ):  # what begins behind a call is half of the next one
            yield from self._emit(held)

    def _outside(self) -> Iterator[LlmOutput]:
        """Say what is surely no beginning of a call."""
        if not self._said and self._hold_python_call():
            return
        place = 0
        while (found := _NOTABLE.search(self._held, place)) is not None:
            if found[0] in OPENING_TAGS or found[0] == _FENCE:
                yield from self._open(found)
                return
            if found[0] in STANDALONE_TAGS:
                yield from self._emit_and_drop(found.start(), found.end())
                return
            if _BEGINS_JSON.match(self._held, found.start()):
                yield from self._json(found.start())
                return
            if _MAY_BEGIN_JSON.fullmatch(self._held, found.start()):
                yield from self._emit_and_drop(found.start(), found.start())
                return
            place = found.end()
        certain = len(self._held[: len(self._held) - _begun(self._held)].rstrip("\n"))
        yield from self._emit_and_drop(certain, certain)

    def _hold_python_call(self) -> bool:
        """True if the answer is a call as Python writes it, or may become one. Then it is held to its end."""
        if self._python.match(self._held):
            self._opened = ""
            return True
        begun = self._held.lstrip().removeprefix("[").lstrip()
        return any(name.startswith(begun) or begun.rstrip() == name for name in self._tools)

    def _open(self, found: re.Match[str]) -> Iterator[LlmOutput]:
        keeps = found[0] == "<function="  # the name is in the mark
        yield from self._emit_and_drop(found.start(), found.start() if keeps else found.end(), until_mark=True)
        self._opened = found[0]

    def _json(self, start: int) -> Iterator[LlmOutput]:
        """Nobody is to hear it; it is a call once it is whole."""
        yield from self._emit_and_drop(start, start, until_mark=True)
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(self._held)
        except (ValueError, RecursionError):
            return
        text, self._held = self._held[:end], self._held[end:]
        values = value if isinstance(value, list) else [value]
        yield from self._use([call for each in values if (call := call_of(each, self._tools))], text)

    def _inside(self) -> Iterator[LlmOutput]:
        """Wait for the closing mark."""
        opened = self._opened or ""
        closes = _FENCE if opened == _FENCE else OPENING_TAGS.get(opened, TO_THE_END)
        if closes == TO_THE_END or closes not in self._held:
            return
        inside, self._held = self._held.split(closes, 1)
        self._opened = None
        yield from self._close(opened, inside)

    def _close(self, opened: str, inside: str) -> Iterator[LlmOutput]:
        if opened in THINKING_TAGS:
            self._trim = _BETWEEN_CALLS
            return
        calls = calls_in(_FENCE + inside if opened == _FENCE else inside, self._tools)
        if calls or opened != _FENCE or _BEGINS_JSON.search(inside):
            yield from self._use(calls, inside)
        else:
            yield from self._emit(inside)

    def _use(self, calls: list[Call], text: str) -> Iterator[LlmOutput]:
        self._trim = _BETWEEN_CALLS
        if not calls:
            _log.warning("tool_call.broken", characters=len(text))
        for name, arguments in calls:
            yield ToolCall(self._new_id(), name, arguments)

    def _emit_and_drop(self, said: int, dropped: int, *, until_mark: bool = False) -> Iterator[LlmOutput]:
        """Say the first characters of what is held, and drop it up to another one."""
        text, self._held = self._held[:said], self._held[dropped:]
        yield from self._emit(text.rstrip("\n") if until_mark else text)

    def _emit(self, text: str) -> Iterator[LlmOutput]:
        if self._trim and (text := text.lstrip(self._trim)) and self._said:
            text = f" {text}"  # what was between is not heard
        if text:
            self._said, self._trim = True, ""
            yield TextDelta(text)


def _begun(text: str) -> int:
    """How many of the last characters may be the beginning of a mark."""
    most = max(map(len, _MARKS)) - 1
    for length in range(min(most, len(text)), 0, -1):
        if any(mark.startswith(text[-length:]) for mark in _MARKS):
            return length
    return 0
