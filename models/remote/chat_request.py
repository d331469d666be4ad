"""Builds requests of `/v1/chat/completions` from a conversation."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from models.llm.context_window import first_message_to_keep
from models.protocols import ChatMessage, ChatPrompt, ToolDefinition
from models.remote.config import RemoteModel
from models.remote.request_queue import Priority
from models.runtime import request_context

MAX_TOKENS: Final = 400
"""Tokens of a response, at most: more than two minutes of speech."""
MAX_JSON_TOKENS: Final = 1024
"""Tokens of JSON, at most."""
CALL_START: Final = "(The call begins.)"
"""User message at the start of a call, because many chat templates require a user message first."""
_BYTES_PER_TOKEN: Final = 3
"""Conservative estimate: usual text has more bytes per token."""
STREAM_OPTIONS: Final = "stream_options"
"""Request field by which the server reports token usage."""
AUTO_PRIORITY: Final = "auto"
"""Value of the operator's field `priority` (vLLM): 0 for callers, 1 for prefill, 2 for work for which nobody waits."""
SALT_PER_ORGANIZATION: Final = "organization"
"""Value of the operator's field `cache_salt` (vLLM): each organization has a prefix cache of its own, so that none can
tell from response times what another one's prompts are."""
CHARACTERS_PER_TOKEN: Final = 4
"""Typical value, for billing; `_BYTES_PER_TOKEN` is conservative."""
_TOKEN_LIMITS: Final = ("max_tokens", "max_completion_tokens", "min_tokens")
_MESSAGE_TOKENS: Final = 12
_MAX_CALLS: Final = 512

log = structlog.get_logger()

Json = dict[str, Any]


class ChatRequestBuilder:
    """Builds requests for one model. A conversation that exceeds its context loses the oldest turns, by estimated
    tokens."""

    def __init__(self, model: RemoteModel) -> None:
        self._model = model
        self._dropped: OrderedDict[str, int] = OrderedDict()

    def streaming_request(self, prompt: ChatPrompt, *, report_usage: bool = True) -> bytes:
        """The request of a streamed response. `report_usage`: have the server report token usage."""
        return self._streaming_request(prompt, self._max_tokens(MAX_TOKENS), report_usage, Priority.LIVE)

    def prefill_request(self, prompt: ChatPrompt) -> bytes:
        """The request by which the server computes the prompt's beginning for its prefix cache: for one token."""
        return self._streaming_request(prompt, 1, False, Priority.PREFILL)

    def _streaming_request(self, prompt: ChatPrompt, max_tokens: int, report_usage: bool, priority: Priority) -> bytes:
        fixed_tokens = _estimated_tokens(prompt.system) + sum(
            _estimated_tokens(json.dumps(_tool_schema(tool))) for tool in prompt.tools
        )
        messages = self._messages_in_budget(prompt, self._model.context_length - max_tokens - fixed_tokens)
        request = self._request(prompt.system, messages, max_tokens, report_usage)
        if prompt.tools:
            request["tools"] = [_tool_schema(tool) for tool in prompt.tools]
        return self._encode(request, priority)

    def json_request(
        self,
        prompt: ChatPrompt,
        schema: Mapping[str, Any],
        *,
        report_usage: bool = True,
        priority: Priority = Priority.BACKGROUND,
    ) -> bytes:
        """The request of a JSON response by `schema`. Turns that earlier responses dropped are kept if they fit."""
        max_tokens = self._max_tokens(MAX_JSON_TOKENS)
        dropped = _first_message(
            prompt.messages, 0, self._model.context_length - max_tokens - _estimated_tokens(prompt.system)
        )
        request = self._request(prompt.system, prompt.messages[dropped:], max_tokens, report_usage)
        response_format = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": dict(schema), "strict": False},
        }
        return self._encode(request | {"response_format": response_format}, priority)

    def _max_tokens(self, tokens: int) -> int:
        return min(tokens, self._model.context_length // 2)

    def estimated_tokens(self, prompt: ChatPrompt) -> int:
        """Estimated prompt tokens if the server reports none: one for four characters, at most the context length."""
        request_messages = [
            prompt.system,
            *(json.dumps(_tool_schema(tool), ensure_ascii=False) for tool in prompt.tools),
        ]
        for message in prompt.messages:
            request_messages += [message.content, *(call.name + call.arguments for call in message.tool_calls)]
        return min(sum(map(len, request_messages)) // CHARACTERS_PER_TOKEN, self._model.context_length)

    def _request(self, system: str, messages: Sequence[ChatMessage], max_tokens: int, report_usage: bool) -> Json:
        request: Json = {
            "model": self._model.model,
            "messages": _request_messages(system, messages),
            "max_tokens": max_tokens,
            "stream": True,
        }
        return {**request, STREAM_OPTIONS: {"include_usage": True}} if report_usage else request

    def _encode(self, request: Json, priority: Priority) -> bytes:
        """The request as JSON, with the operator's fields; two of them may be filled for each request."""
        fields = self._model.with_extra(request)
        if fields.get("priority") == AUTO_PRIORITY:
            fields["priority"] = int(priority)
        if fields.get("cache_salt") == SALT_PER_ORGANIZATION:
            organization = request_context.current().organization_id
            fields["cache_salt"] = hashlib.sha256(f"trunkline/{organization}".encode()).hexdigest()[:32]
        if priority is Priority.PREFILL:
            fields |= {name: 1 for name in _TOKEN_LIMITS if name in fields}
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")

    def _messages_in_budget(self, prompt: ChatPrompt, budget: int) -> Sequence[ChatMessage]:
        """The messages that fit the budget. The number of dropped messages changes only when necessary, so that the
        server's prefix cache stays valid."""
        previously_dropped = self._dropped.get(prompt.call_id, 0)
        dropped = _first_message(prompt.messages, previously_dropped, budget)
        if dropped != previously_dropped:
            log.info("language_model.turns_left_out", call_id=prompt.call_id, messages=dropped)
            self._dropped[prompt.call_id] = dropped
            while len(self._dropped) > _MAX_CALLS:
                self._dropped.popitem(last=False)
        return prompt.messages[dropped:]


def _first_message(messages: Sequence[ChatMessage], previously_dropped: int, budget: int) -> int:
    """The index of the first message to keep, when `previously_dropped` were dropped the last time (perhaps of another
    conversation). Never a tool result, which would have lost its call."""
    start = previously_dropped if previously_dropped < len(messages) else 0
    while start and messages[start].role == "tool":
        start -= 1
    dropped = first_message_to_keep(
        [_message_tokens(each) for each in messages], [each.role == "user" for each in messages], budget, start
    )
    return next((place for place in range(dropped, len(messages)) if messages[place].role != "tool"), len(messages))


def _estimated_tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN


def _message_tokens(message: ChatMessage) -> int:
    calls = message.tool_calls
    text = message.content + "".join(call.name + call.arguments for call in calls)
    return _estimated_tokens(text) + _MESSAGE_TOKENS * (1 + len(calls))


def _request_messages(system: str, messages: Sequence[ChatMessage]) -> list[Json]:
    """The messages of a request: the user begins, text messages of one role in a row are merged, and no user message
    follows a tool result, which some servers reject."""
    request_messages: list[Json] = [{"role": "system", "content": system}] if system else []
    ordered = list(_unspoken_results_last(messages))
    if not ordered or ordered[0].role == "assistant":
        request_messages.append({"role": "user", "content": CALL_START})
    for message in ordered:
        request_message = _request_message(message)
        last = request_messages[-1] if request_messages else {}
        if last.keys() == request_message.keys() == {"role", "content"} and last["role"] == request_message["role"]:
            last["content"] = f"{last['content']}\n\n{request_message['content']}"
        else:
            request_messages.append(request_message)
    return request_messages


def _unspoken_results_last(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Moves tool calls and results that precede a user message, without a response to them, behind it."""
    held_back: list[ChatMessage] = []
    for message in messages:
        if message.role == "tool" or (message.tool_calls and not message.content):
            held_back.append(message)
            continue
        if message.role != "user":
            yield from held_back
            held_back = []
        yield message
    yield from held_back


def _request_message(message: ChatMessage) -> Json:
    request_message: Json = {"role": message.role, "content": message.content}
    if message.tool_calls:
        request_message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _object_arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        request_message["tool_call_id"] = message.tool_call_id
    return request_message


def _object_arguments(text: str) -> str:
    """Arguments as a JSON object, `{}` for anything else, which some servers reject."""
    try:
        return text if isinstance(json.loads(text), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"


def _tool_schema(tool: ToolDefinition) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}
