"""A talk as a request for a chat completion."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from models.llama.overflow import first_kept
from models.protocols import ChatMessage, ChatPrompt, ToolDefinition
from models.remote.remote_model import RemoteModel

MOST_TOKENS: Final = 400
"""Of an answer: more than two minutes of speech."""
BEGINS: Final = "(The call begins.)"
"""In the place of a caller who has said nothing yet: many templates want the user to speak first."""
_BYTES_PER_TOKEN: Final = 3
"""Fewer than any usual text has."""
_LINE_COST: Final = 12
_KEPT_CALLS: Final = 512

log = structlog.get_logger()

Json = dict[str, Any]


class ChatRequests:
    """Writes requests for one model. A talk that is too long for it loses its oldest turns: estimated, as the model's
    tokens are not known here."""

    def __init__(self, model: RemoteModel) -> None:
        self._model = model
        self._most = min(MOST_TOKENS, model.context_length // 2)
        self._dropped: OrderedDict[str, int] = OrderedDict()

    def streamed(self, prompt: ChatPrompt) -> bytes:
        """For an answer that is spoken while it comes."""
        request = self._request(prompt) | {"stream": True}
        if prompt.tools:
            request["tools"] = [_signature(tool) for tool in prompt.tools]
        return self._written(request)

    def formed(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> bytes:
        """For JSON that `schema` takes."""
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema), "strict": False}}
        return self._written(self._request(prompt) | {"stream": True, "response_format": form})

    def _request(self, prompt: ChatPrompt) -> Json:
        return {
            "model": self._model.model,
            "messages": _lines(prompt.system, self._kept(prompt)),
            "max_tokens": self._most,
        }

    def _written(self, request: Json) -> bytes:
        return json.dumps({**request, **self._model.extra}, ensure_ascii=False).encode("utf-8", "replace")

    def _kept(self, prompt: ChatPrompt) -> Sequence[ChatMessage]:
        """The messages for which there is room. Always the same beginning is left out until that is too little: what
        the server has read of a talk stays good."""
        fixed = _tokens(prompt.system) + sum(_tokens(json.dumps(_signature(tool))) for tool in prompt.tools)
        costs = [_cost(message) for message in prompt.messages]
        before = min(self._dropped.get(prompt.call_id, 0), len(costs))
        begins = [message.role == "user" for message in prompt.messages]
        dropped = first_kept(costs, begins, self._model.context_length - self._most - fixed, before)
        if dropped != before:
            log.info("language_model.turns_left_out", call_id=prompt.call_id, messages=dropped)
            self._dropped[prompt.call_id] = dropped
            while len(self._dropped) > _KEPT_CALLS:
                self._dropped.popitem(last=False)
        return prompt.messages[dropped:]


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN


def _cost(message: ChatMessage) -> int:
    calls = message.tool_calls
    text = message.content + "".join(call.name + call.arguments for call in calls)
    return _tokens(text) + _LINE_COST * (1 + len(calls))


def _lines(system: str, messages: Sequence[ChatMessage]) -> list[Json]:
    """The talk; after the system the user begins, and plain lines of one speaker in a row are one."""
    lines: list[Json] = [{"role": "system", "content": system}] if system else []
    if not messages or messages[0].role == "assistant":
        lines.append({"role": "user", "content": BEGINS})
    for message in messages:
        line = _line(message)
        last = lines[-1] if lines else {}
        if last.keys() == line.keys() == {"role", "content"} and last["role"] == line["role"]:
            last["content"] = f"{last['content']}\n\n{line['content']}"
        else:
            lines.append(line)
    return lines


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
