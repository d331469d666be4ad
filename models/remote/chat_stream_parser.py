"""Parses a chat completion from the pieces in which it is streamed. Pure.

Servers differ: some give a call's name and arguments in pieces, some whole; some number calls, some number them all 0;
some repeat ids, some have none. All of them are understood, and everything that comes is bounded.
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
"""Characters of what is said, and of what is thought."""
MAX_TOKENS: Final = 10_000_000
"""No prompt, and no answer, has more."""
_LONGEST_NAME: Final = 128
_OPENS: Final = "<think>"
_CLOSES: Final = "</think>"


@dataclass
class _Call:
    """A tool call in the making."""

    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""


class ThinkingFilter:
    """Takes out what a model thinks before it speaks, where its server leaves that to us: all up to `</think>`, if it
    begins with `<think>`."""

    def __init__(self) -> None:
        self._held = ""
        self._thinks: bool | None = None
        """None: it has not said enough to tell."""

    def feed(self, text: str) -> str:
        """What of it is to be said."""
        if self._thinks is False:
            return text
        self._held += text
        begun = self._held.lstrip()
        if self._thinks is None and not _OPENS.startswith(begun[: len(_OPENS)]):
            self._thinks = False
            return self._held
        self._thinks = begun.startswith(_OPENS) or None
        _, closed, said = self._held.partition(_CLOSES)
        if self._thinks and closed:
            self._thinks = False
            return said.lstrip()
        if len(self._held) > MAX_TEXT:
            raise RemoteModelError("broken", "thinks without an end", counts=False)
        return ""

    def rest(self) -> str:
        """What was held back at the end, and is no thought."""
        return "" if self._thinks is not None else self._held


class ChatStreamParser:
    """Takes chunks. `finished`: the model has said that it is done. `progress` grows with everything that comes of the
    answer, thoughts too. `usage`: tokens read and written, as the server has counted them; None: it has not said so."""

    def __init__(self, new_id: Iterator[str]) -> None:
        """`new_id` names calls that come without an id."""
        self.finished = False
        self.progress = 0
        self.usage: tuple[int, int] | None = None
        self._new_id = new_id
        self._thoughts = ThinkingFilter()
        self._said = 0
        self._calls: list[_Call] = []

    def feed(self, chunk: Any) -> str:
        """The text that is to be said next. Raises `RemoteModelError`."""
        if not isinstance(chunk, dict):
            raise RemoteModelError("broken", "sends what is no chunk of an answer")
        if chunk.get("error"):
            raise RemoteModelError("failing", f"broke off: {error_excerpt(json.dumps(chunk)) or 'an error'}")
        self.usage = _usage(chunk.get("usage")) or self.usage  # some tell it with every chunk, so far
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise RemoteModelError("broken", "sends a chunk without choices")
        return "".join(self._choice(choice) for choice in choices if choice.get("index", 0) in (0, None))

    @property
    def characters(self) -> int:
        """How much came of the answer, without its thoughts."""
        return self._said + sum(len(call.name) + len(call.arguments) for call in self._calls)

    @property
    def has_calls(self) -> bool:
        """True if it has begun to want tools."""
        return bool(self._calls)

    def calls(self) -> list[ToolCall]:
        """The tools that it wants, once it is finished; each has an id of its own."""
        ids: set[str] = set()
        told: list[ToolCall] = []
        for call in self._calls:
            if not call.name:
                raise RemoteModelError("broken", "wants a tool and does not name it", counts=False)
            while not call.id or call.id in ids:
                call.id = next(self._new_id)
            ids.add(call.id)
            told.append(ToolCall(call.id, call.name, call.arguments.strip() or "{}"))
        return told

    def rest(self) -> str:
        """The last of the text, at the end."""
        return self._thoughts.rest()

    def _choice(self, choice: dict[str, Any]) -> str:
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, dict):
            raise RemoteModelError("broken", "sends a delta that is none")
        text = self._text(delta.get("content"))
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise RemoteModelError("broken", "sends tool calls that are no list")
        for place, call in enumerate(calls):
            self._call(call, None if "message" in choice else place)
        if any(delta.get(name) for name in ("reasoning_content", "reasoning")):
            self.progress += 1
        if choice.get("finish_reason") is not None or "message" in choice:
            self.finished = True
        return text

    def _text(self, content: Any) -> str:
        if isinstance(content, list):  # parts, of which some are text
            content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
        if content is None or content == "":
            return ""
        if not isinstance(content, str):
            raise RemoteModelError("broken", "sends content that is no text")
        self.progress += 1
        text = self._thoughts.feed(strip_unstorable(content))
        self._said += len(text)
        if self._said > MAX_TEXT:
            raise RemoteModelError("broken", "says more than can be said in a call", counts=False)
        return text

    def _call(self, piece: Any, place: int | None) -> None:
        """A piece of a call, or a whole one; `place` among the pieces of its chunk."""
        function = piece.get("function") if isinstance(piece, dict) else None
        if not isinstance(function, dict):
            raise RemoteModelError("broken", "sends a tool call that is none")
        index = piece.get("index", place)
        id_, name, arguments = piece.get("id") or "", function.get("name") or "", function.get("arguments")
        if isinstance(arguments, dict | list):  # as some servers have it
            arguments = json.dumps(arguments, ensure_ascii=False)
        arguments = "" if arguments is None else arguments
        if not all(isinstance(each, str) for each in (id_, name, arguments)) or not isinstance(index, int | None):
            raise RemoteModelError("broken", "sends a tool call of wrong types")
        self.progress += 1
        another = bool(name) and piece.get("index") is None
        self._put(
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

    def _put(self, call: _Call, id_: str, name: str, arguments: str) -> None:
        call.id = call.id or id_[:_LONGEST_NAME]
        if not call.arguments and name != call.name:  # some repeat the name with every piece
            call.name += name
        call.arguments += arguments
        if len(call.name) > _LONGEST_NAME or len(call.arguments) > MAX_ARGUMENTS:
            raise RemoteModelError("broken", "sends a tool call that is longer than it may be", counts=False)


def _usage(told: Any) -> tuple[int, int] | None:
    """What a chunk says of tokens. What cannot be is not believed: somebody pays for it."""
    if not isinstance(told, dict):
        return None
    read, written = told.get("prompt_tokens"), told.get("completion_tokens")
    if (
        type(read) is not int
        or type(written) is not int
        or not (0 <= read <= MAX_TOKENS and 0 <= written <= MAX_TOKENS)
    ):
        return None
    return read, written
