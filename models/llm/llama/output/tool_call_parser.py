"""Parses tool calls out of a model's streamed output.

Models write them between tags (Qwen, Hermes), after a tag of their own or as the whole response (Llama 3, Mistral, and
most others that were prompted for JSON). Text that may become a call is buffered until that is certain, because a
caller must never hear JSON or thinking; all other text passes at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from models.llm.llama.output.tool_call_formats import Call, Tools, parse_call, parse_calls, python_call_pattern
from models.llm.llama.special_tokens import (
    NO_CLOSING_TAG,
    OPENING_TAGS,
    STANDALONE_TAGS,
    THINKING_END_TEXTS,
    THINKING_TAGS,
)
from models.protocols import LlmOutput, TextDelta, ToolCall

_CODE_FENCE: Final = "```"
_TAGS: Final = sorted((*OPENING_TAGS, *STANDALONE_TAGS, _CODE_FENCE), key=len, reverse=True)
_TAG_OR_JSON: Final = re.compile("|".join([*map(re.escape, _TAGS), r"[\[{]"]))
_JSON_START: Final = re.compile(r"""\{\s*["'}]|\[\s*\{\s*["'}]|\[\s*\[""")
_PARTIAL_JSON_START: Final = re.compile(r"[\[{]\s*\{?\s*")
_CALL_SEPARATORS: Final = " \t\r\n;,"
_log = structlog.get_logger()


class ToolCallParser:
    """Parses one response, piece by piece. `tools`: the parameters of each tool; `new_id` returns ids for calls."""

    def __init__(self, tools: Tools, new_id: Callable[[], str]) -> None:
        self._tools = tools
        self._new_id = new_id
        self._python_call = python_call_pattern(tools)
        self._buffer = ""
        self._open_tag: str | None = None  # the tag, "" in a Python call
        self._has_spoken = False
        self._strip_before = " \t\r\n"  # characters to strip before the first text and after a call

    @property
    def thinking_end(self) -> str | None:
        """The text that would end the thinking in progress; None if there is none."""
        return THINKING_END_TEXTS.get(self._open_tag or "")

    def feed(self, text: str) -> Iterator[LlmOutput]:
        """Add text. Yields the parts that are certain."""
        self._buffer += text
        before = None
        while self._buffer and (len(self._buffer), self._open_tag) != before:
            before = len(self._buffer), self._open_tag
            yield from self._parse_inside() if self._open_tag is not None else self._parse_outside()

    def finish(self) -> Iterator[LlmOutput]:
        """End the response. Yields the buffered text as calls or as text."""
        rest, self._buffer = self._buffer, ""
        open_tag, self._open_tag = self._open_tag, None
        if open_tag is not None:
            yield from self._close_region(open_tag, rest)
        elif _JSON_START.match(rest):
            yield from self._emit_calls(parse_calls(rest, self._tools), rest)
        elif not (
            self._strip_before and _partial_tag_length(rest) == len(rest.lstrip())
        ):  # a partial tag after a call is half of the next one
            yield from self._emit_text(rest)

    def _parse_outside(self) -> Iterator[LlmOutput]:
        """Parse outside of tags: yields text that cannot begin a call."""
        if not self._has_spoken and self._hold_python_call():
            return
        position = 0
        while (match := _TAG_OR_JSON.search(self._buffer, position)) is not None:
            if match[0] in OPENING_TAGS or match[0] == _CODE_FENCE:
                yield from self._open_region(match)
                return
            if match[0] in STANDALONE_TAGS:
                yield from self._emit_and_drop(match.start(), match.end())
                return
            if _JSON_START.match(self._buffer, match.start()):
                yield from self._parse_json(match.start())
                return
            if _PARTIAL_JSON_START.fullmatch(self._buffer, match.start()):
                yield from self._emit_and_drop(match.start(), match.start())
                return
            position = match.end()
        safe_end = len(self._buffer[: len(self._buffer) - _partial_tag_length(self._buffer)].rstrip("\n"))
        yield from self._emit_and_drop(safe_end, safe_end)

    def _hold_python_call(self) -> bool:
        """Buffer a response that is, or may become, a Python call. Returns True if it does."""
        if self._python_call.match(self._buffer):
            self._open_tag = ""
            return True
        start = self._buffer.lstrip().removeprefix("[").lstrip()
        return any(name.startswith(start) or start.rstrip() == name for name in self._tools)

    def _open_region(self, match: re.Match[str]) -> Iterator[LlmOutput]:
        keeps_tag = match[0] == "<function="  # the tag holds the name
        yield from self._emit_and_drop(match.start(), match.start() if keeps_tag else match.end(), until_mark=True)
        self._open_tag = match[0]

    def _parse_json(self, start: int) -> Iterator[LlmOutput]:
        """Parse JSON, which is a call when complete and never spoken."""
        yield from self._emit_and_drop(start, start, until_mark=True)
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(self._buffer)
        except (ValueError, RecursionError):
            return
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        values = value if isinstance(value, list) else [value]
        yield from self._emit_calls([call for each in values if (call := parse_call(each, self._tools))], text)

    def _parse_inside(self) -> Iterator[LlmOutput]:
        """Parse inside of a tag: waits for the closing tag."""
        open_tag = self._open_tag or ""
        closing_tag = _CODE_FENCE if open_tag == _CODE_FENCE else OPENING_TAGS.get(open_tag, NO_CLOSING_TAG)
        if closing_tag == NO_CLOSING_TAG or closing_tag not in self._buffer:
            return
        inside, self._buffer = self._buffer.split(closing_tag, 1)
        self._open_tag = None
        yield from self._close_region(open_tag, inside)

    def _close_region(self, open_tag: str, inside: str) -> Iterator[LlmOutput]:
        if open_tag in THINKING_TAGS:
            self._strip_before = _CALL_SEPARATORS
            return
        calls = parse_calls(_CODE_FENCE + inside if open_tag == _CODE_FENCE else inside, self._tools)
        if calls or open_tag != _CODE_FENCE or _JSON_START.search(inside):
            yield from self._emit_calls(calls, inside)
        else:
            yield from self._emit_text(inside)

    def _emit_calls(self, calls: list[Call], text: str) -> Iterator[LlmOutput]:
        self._strip_before = _CALL_SEPARATORS
        if not calls:
            _log.warning("tool_call.broken", characters=len(text))
        for name, arguments in calls:
            yield ToolCall(self._new_id(), name, arguments)

    def _emit_and_drop(self, text_end: int, drop_end: int, *, until_mark: bool = False) -> Iterator[LlmOutput]:
        """Yield the first `text_end` characters of the buffer, and drop the first `drop_end`."""
        text, self._buffer = self._buffer[:text_end], self._buffer[drop_end:]
        yield from self._emit_text(text.rstrip("\n") if until_mark else text)

    def _emit_text(self, text: str) -> Iterator[LlmOutput]:
        if self._strip_before and (text := text.lstrip(self._strip_before)) and self._has_spoken:
            text = f" {text}"  # the separator was dropped
        if text:
            self._has_spoken, self._strip_before = True, ""
            yield TextDelta(text)


def _partial_tag_length(text: str) -> int:
    """Number of characters at the end that may begin a tag."""
    max_length = max(map(len, _TAGS)) - 1
    for length in range(min(max_length, len(text)), 0, -1):
        if any(tag.startswith(text[-length:]) for tag in _TAGS):
            return length
    return 0
