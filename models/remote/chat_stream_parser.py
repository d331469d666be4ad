"""Parses the chunks of a streamed chat completion. Pure.

Servers differ: names and arguments of tool calls come in pieces or complete; indexes are numbered or all 0; ids repeat
or are missing. All variants are supported, and all sizes are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from models.errors import RemoteModelError
from models.protocols import ToolCall
from models.remote.json_safety import error_excerpt, strip_unstorable

MAX_CALLS: Final = 16
MAX_ARGUMENTS: Final = 32 * 1024
"""Characters."""
MAX_TEXT: Final = 20_000
"""Characters of the text, and of the thinking."""
MAX_TOKENS: Final = 10_000_000
"""Tokens of a prompt or a response in a usage report, at most."""
_MAX_NAME: Final = 128
_OPENING_TAG: Final = "<think>"
_CLOSING_TAG: Final = "</think>"


@dataclass
class _Call:
    """A tool call in progress."""

    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""


class ThinkingFilter:
    """Removes a model's thinking at the start of its text, if the server does not: from `<think>` to `</think>`."""

    def __init__(self) -> None:
        self._buffer = ""
        self._is_thinking: bool | None = None
        """None: not yet determined."""

    def feed(self, text: str) -> str:
        """The text without thinking."""
        if self._is_thinking is False:
            return text
        self._buffer += text
        start = self._buffer.lstrip()
        if self._is_thinking is None and not _OPENING_TAG.startswith(start[: len(_OPENING_TAG)]):
            self._is_thinking = False
            return self._buffer
        self._is_thinking = start.startswith(_OPENING_TAG) or None
        _, closing_tag, answer = self._buffer.partition(_CLOSING_TAG)
        if self._is_thinking and closing_tag:
            self._is_thinking = False
            return answer.lstrip()
        if len(self._buffer) > MAX_TEXT:
            raise RemoteModelError("broken", "thinks without an end", counts=False)
        return ""

    def rest(self) -> str:
        """The buffered text at the end that is no thinking."""
        return "" if self._is_thinking is not None else self._buffer


class ChatStreamParser:
    """Parses chunks. `finished`: a finish reason was received. `progress` grows with each part of the response,
    thinking too. `usage`: prompt and completion tokens by the server; None if not reported."""

    def __init__(self, new_id: Iterator[str]) -> None:
        """`new_id`: ids for tool calls without one."""
        self.finished = False
        self.progress = 0
        self.usage: tuple[int, int] | None = None
        self._new_id = new_id
        self._thinking_filter = ThinkingFilter()
        self._text_length = 0
        self._calls: list[_Call] = []

    def feed(self, chunk: Any) -> str:
        """The next text to speak. Raises `RemoteModelError`."""
        if not isinstance(chunk, dict):
            raise RemoteModelError("broken", "sends what is no chunk of an answer")
        if chunk.get("error"):
            raise RemoteModelError("failing", f"broke off: {error_excerpt(json.dumps(chunk)) or 'an error'}")
        self.usage = _usage_of(chunk.get("usage")) or self.usage  # some tell it with every chunk, so far
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise RemoteModelError("broken", "sends a chunk without choices")
        return "".join(self._read_choice(choice) for choice in choices if choice.get("index", 0) in (0, None))

    @property
    def characters(self) -> int:
        """Characters of the response, without thinking."""
        return self._text_length + sum(len(call.name) + len(call.arguments) for call in self._calls)

    @property
    def has_calls(self) -> bool:
        """True if a tool call has begun."""
        return bool(self._calls)

    def calls(self) -> list[ToolCall]:
        """The tool calls of the finished response, each with a unique id."""
        ids: set[str] = set()
        calls: list[ToolCall] = []
        for call in self._calls:
            if not call.name:
                raise RemoteModelError("broken", "wants a tool and does not name it", counts=False)
            while not call.id or call.id in ids:
                call.id = next(self._new_id)
            ids.add(call.id)
            calls.append(ToolCall(call.id, call.name, call.arguments.strip() or "{}"))
        return calls

    def rest(self) -> str:
        """The rest of the text, at the end."""
        return self._thinking_filter.rest()

    def _read_choice(self, choice: dict[str, Any]) -> str:
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, dict):
            raise RemoteModelError("broken", "sends a delta that is none")
        text = self._read_content(delta.get("content"))
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise RemoteModelError("broken", "sends tool calls that are no list")
        for index_in_chunk, call in enumerate(calls):
            self._read_call_piece(call, None if "message" in choice else index_in_chunk)
        if any(delta.get(name) for name in ("reasoning_content", "reasoning")):
            self.progress += 1
        if choice.get("finish_reason") is not None or "message" in choice:
            self.finished = True
        return text

    def _read_content(self, content: Any) -> str:
        if isinstance(content, list):  # parts, of which some are text
            content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
        if content is None or content == "":
            return ""
        if not isinstance(content, str):
            raise RemoteModelError("broken", "sends content that is no text")
        self.progress += 1
        text = self._thinking_filter.feed(strip_unstorable(content))
        self._text_length += len(text)
        if self._text_length > MAX_TEXT:
            raise RemoteModelError("broken", "says more than can be said in a call", counts=False)
        return text

    def _read_call_piece(self, piece: Any, index_in_chunk: int | None) -> None:
        """Add a piece of a tool call, or a complete one; `index_in_chunk` is its index in the chunk."""
        function = piece.get("function") if isinstance(piece, dict) else None
        if not isinstance(function, dict):
            raise RemoteModelError("broken", "sends a tool call that is none")
        index = piece.get("index", index_in_chunk)
        id_, name, arguments = piece.get("id") or "", function.get("name") or "", function.get("arguments")
        if isinstance(arguments, dict | list):  # as some servers have it
            arguments = json.dumps(arguments, ensure_ascii=False)
        arguments = "" if arguments is None else arguments
        if not all(isinstance(each, str) for each in (id_, name, arguments)) or not isinstance(index, int | None):
            raise RemoteModelError("broken", "sends a tool call of wrong types")
        self.progress += 1
        another = bool(name) and piece.get("index") is None
        self._append(
            self._meant(index, id_, name, another),
            strip_unstorable(id_),
            strip_unstorable(name),
            strip_unstorable(arguments),
        )

    def _meant(self, index: int | None, id_: str, name: str, another: bool) -> _Call:
        """The call that a piece belongs to: the one of its number, unless it has another id and a name (there are
        servers that number every call 0), or is `another` because it has a name, but no number."""
        for call in reversed(self._calls):
            if index is not None and call.index == index:
                if (id_ and call.id and id_ != call.id and name) or (another and call.arguments):
                    break
                return call
        if len(self._calls) >= MAX_CALLS:
            raise RemoteModelError("broken", f"wants more than {MAX_CALLS} tools at once", counts=False)
        self._calls.append(_Call(index))
        return self._calls[-1]

    def _append(self, call: _Call, id_: str, name: str, arguments: str) -> None:
        call.id = call.id or id_[:_MAX_NAME]
        if not call.arguments and name != call.name:  # some repeat the name with every piece
            call.name += name
        call.arguments += arguments
        if len(call.name) > _MAX_NAME or len(call.arguments) > MAX_ARGUMENTS:
            raise RemoteModelError("broken", "sends a tool call that is longer than it may be", counts=False)


def _usage_of(calls: Any) -> tuple[int, int] | None:
    """The usage report of a chunk; None if implausible, because it is billed."""
    if not isinstance(calls, dict):
        return None
    read, written = calls.get("prompt_tokens"), calls.get("completion_tokens")
    if (
        type(read) is not int
        or type(written) is not int
        or not (0 <= read <= MAX_TOKENS and 0 <= written <= MAX_TOKENS)
    ):
        return None
    return read, written
