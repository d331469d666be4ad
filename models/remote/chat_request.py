"""Builds requests of `/v1/chat/completions` from a conversation."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from models.llm.context_window import first_kept
from models.protocols import ChatMessage, ChatPrompt, ToolDefinition
from models.remote.config import RemoteModel

MAX_TOKENS: Final = 400
"""Of an answer: more than two minutes of speech."""
MAX_JSON_TOKENS: Final = 1024
"""Of JSON."""
CALL_BEGINS: Final = "(The call begins.)"
"""In the place of a caller who has said nothing yet: many templates want the user to speak first."""
_BYTES_PER_TOKEN: Final = 3
"""Fewer than any usual text has."""
STREAM_OPTIONS: Final = "stream_options"
"""The field that asks a server to say how many tokens an answer took."""
CHARACTERS_PER_TOKEN: Final = 4
"""As many as usual, for what is to be paid; `_BYTES_PER_TOKEN` errs on the safe side."""
_LINE_COST: Final = 12
_KEPT_CALLS: Final = 512

log = structlog.get_logger()

Json = dict[str, Any]


class ChatRequestBuilder:
    """Writes requests for one model. A talk that is too long for it loses its oldest turns: estimated, as the model's
    tokens are not known here."""

    def __init__(self, model: RemoteModel) -> None:
        self._model = model
        self._dropped: OrderedDict[str, int] = OrderedDict()

    def streaming_request(self, prompt: ChatPrompt, *, counted: bool = True) -> bytes:
        """For an answer that is spoken while it comes. `counted`: the server is to say what it took."""
        most = self._most(MAX_TOKENS)
        fixed = _tokens(prompt.system) + sum(_tokens(json.dumps(_signature(tool))) for tool in prompt.tools)
        kept = self._kept(prompt, self._model.context_length - most - fixed)
        request = self._request(prompt.system, kept, most, counted)
        if prompt.tools:
            request["tools"] = [_signature(tool) for tool in prompt.tools]
        return self._written(request)

    def json_request(self, prompt: ChatPrompt, schema: Mapping[str, Any], *, counted: bool = True) -> bytes:
        """For JSON that `schema` takes. It may be about anything of a call: what answers left out of the talk does not
        matter."""
        most = self._most(MAX_JSON_TOKENS)
        dropped = _first(prompt.messages, 0, self._model.context_length - most - _tokens(prompt.system))
        request = self._request(prompt.system, prompt.messages[dropped:], most, counted)
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema), "strict": False}}
        return self._written(request | {"response_format": form})

    def _most(self, tokens: int) -> int:
        return min(tokens, self._model.context_length // 2)

    def estimated_tokens(self, prompt: ChatPrompt) -> int:
        """Tokens of a prompt, where the server does not tell: one for every four characters, and no more than there is
        room for."""
        lines = [prompt.system, *(json.dumps(_signature(tool), ensure_ascii=False) for tool in prompt.tools)]
        for message in prompt.messages:
            lines += [message.content, *(call.name + call.arguments for call in message.tool_calls)]
        return min(sum(map(len, lines)) // CHARACTERS_PER_TOKEN, self._model.context_length)

    def _request(self, system: str, messages: Sequence[ChatMessage], most: int, counted: bool) -> Json:
        request: Json = {
            "model": self._model.model,
            "messages": _lines(system, messages),
            "max_tokens": most,
            "stream": True,
        }
        return {**request, STREAM_OPTIONS: {"include_usage": True}} if counted else request

    def _written(self, request: Json) -> bytes:
        fields = {name: value for name, value in {**request, **self._model.extra}.items() if value is not None}
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")

    def _kept(self, prompt: ChatPrompt, room: int) -> Sequence[ChatMessage]:
        """The messages for which there is room. Always the same beginning is left out until that is too little: what
        the server has read of a talk stays good."""
        before = self._dropped.get(prompt.call_id, 0)
        dropped = _first(prompt.messages, before, room)
        if dropped != before:
            log.info("language_model.turns_left_out", call_id=prompt.call_id, messages=dropped)
            self._dropped[prompt.call_id] = dropped
            while len(self._dropped) > _KEPT_CALLS:
                self._dropped.popitem(last=False)
        return prompt.messages[dropped:]


def _first(messages: Sequence[ChatMessage], before: int, room: int) -> int:
    """The place of the first message to keep, where `before` were left out the last time. (The talk may have become
    another one since.) It is no tool's result, which would have lost its call."""
    start = before if before < len(messages) else 0
    while start and messages[start].role == "tool":
        start -= 1
    dropped = first_kept([_cost(each) for each in messages], [each.role == "user" for each in messages], room, start)
    return next((place for place in range(dropped, len(messages)) if messages[place].role != "tool"), len(messages))


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN


def _cost(message: ChatMessage) -> int:
    calls = message.tool_calls
    text = message.content + "".join(call.name + call.arguments for call in calls)
    return _tokens(text) + _LINE_COST * (1 + len(calls))


def _lines(system: str, messages: Sequence[ChatMessage]) -> list[Json]:
    """The talk; after the system the user begins, plain lines of one speaker in a row are one, and no user speaks right
    after a tool, for which some servers refuse a talk."""
    lines: list[Json] = [{"role": "system", "content": system}] if system else []
    told = list(_results_last(messages))
    if not told or told[0].role == "assistant":
        lines.append({"role": "user", "content": CALL_BEGINS})
    for message in told:
        line = _line(message)
        last = lines[-1] if lines else {}
        if last.keys() == line.keys() == {"role", "content"} and last["role"] == line["role"]:
            last["content"] = f"{last['content']}\n\n{line['content']}"
        else:
            lines.append(line)
    return lines


def _results_last(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Tools that were used before the user spoke, and of which nothing was said yet, come behind the user's line."""
    held: list[ChatMessage] = []
    for message in messages:
        if message.role == "tool" or (message.tool_calls and not message.content):
            held.append(message)
            continue
        if message.role != "user":
            yield from held
            held = []
        yield message
    yield from held


def _line(message: ChatMessage) -> Json:
    line: Json = {"role": message.role, "content": message.content}
    if message.tool_calls:
        line["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        line["tool_call_id"] = message.tool_call_id
    return line


def _arguments(text: str) -> str:
    """Some servers refuse a talk in which a model wrote no JSON object."""
    try:
        return text if isinstance(json.loads(text), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"


def _signature(tool: ToolDefinition) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}
