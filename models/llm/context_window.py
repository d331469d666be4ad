"""Fits a conversation into a model's context window by dropping the oldest turns. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition

MESSAGE_TOKENS: Final = 12
"""Tokens of the template around a message or a tool call, at most."""
_FILL_AFTER_DROP: Final = 0.6
"""Share of the token budget that remains filled after a drop. A drop invalidates the KV cache of all that follows, so
several turns are dropped at once, and none in the next turns."""


def turn_starts(messages: Sequence[ChatMessage]) -> list[bool]:
    """True for each message that begins a turn: one of the user, or the tool calls right before it, such as a document
    search for the user's words."""
    turn_indexes = [message.role == "user" for message in messages]
    for index in range(len(messages) - 1, 0, -1):
        before = messages[index - 1]
        if turn_indexes[index] and (before.role == "tool" or (before.tool_calls and not before.content)):
            turn_indexes[index - 1], turn_indexes[index] = True, False
    return turn_indexes


def first_message_to_keep(token_counts: Sequence[int], begins_turn: Sequence[bool], budget: int, dropped: int) -> int:
    """The index of the first message to keep, for messages of `token_counts` tokens and a budget of `budget` tokens,
    when `dropped` messages were dropped before. Turns are dropped as a whole, so that no tool result loses its call;
    the last turn stays."""
    turn_indexes = [index for index, is_start in enumerate(begins_turn) if is_start and index >= dropped] or [dropped]
    if sum(token_counts[dropped:]) <= budget:
        return dropped
    return next(
        (start for start in turn_indexes if sum(token_counts[start:]) <= _FILL_AFTER_DROP * budget), turn_indexes[-1]
    )


def cut_middle(tokens: list[int], budget: int) -> list[int]:
    """The tokens without their middle, at most `budget`: the beginning holds the agent's role and the end the
    question."""
    if len(tokens) <= budget:
        return tokens
    return tokens[: budget // 2] + tokens[len(tokens) - (budget - budget // 2) :]


def shorten_last_turn(prompt: ChatPrompt, budget: int, count: Callable[[str], int]) -> ChatPrompt:
    """Shortens a prompt whose last turn alone exceeds `budget` tokens: with shorter tool definitions, with the longest
    texts cut in the middle, and without the oldest tool calls and their results. The caller's last message stays.
    `count` counts a text's tokens."""
    tools = _shorten_tools(prompt.tools, budget // 3, count)
    remaining = budget - _tools_tokens(tools, count)
    messages = _last_messages(prompt.messages, remaining // (2 * MESSAGE_TOKENS))
    remaining = max(remaining - MESSAGE_TOKENS * sum(1 + len(message.tool_calls) for message in messages), 0)
    token_counts = [count(prompt.system), *(count(message.content) for message in messages)]
    limit = _common_limit(token_counts, remaining)
    shortened = [
        replace(
            message,
            content=_cut_text(message.content, tokens, limit),
            tool_calls=_short_arguments(message, limit, count),
        )
        for message, tokens in zip(messages, token_counts[1:], strict=True)
    ]
    return replace(prompt, system=_cut_text(prompt.system, token_counts[0], limit), messages=shortened, tools=tools)


def _last_messages(messages: Sequence[ChatMessage], limit: int) -> list[ChatMessage]:
    """The last `limit` messages and the caller's last one. No tool result loses its call."""
    turn_indexes = [index for index, message in enumerate(messages) if message.role != "tool"]
    first = next(
        (start for start in turn_indexes if len(messages) - start <= limit), turn_indexes[-1] if turn_indexes else 0
    )
    user_indexes = [index for index, message in enumerate(messages) if message.role == "user"]
    last_user = [messages[user_indexes[-1]]] if user_indexes and user_indexes[-1] < first else []
    return [*last_user, *messages[first:]]


def _shorten_tools(
    tools: Sequence[ToolDefinition], budget: int, count: Callable[[str], int]
) -> tuple[ToolDefinition, ...]:
    """All tools in full, else without descriptions of parameters, else with names and types only, else as many as
    fit."""
    for shorten in (lambda tool: tool, _without_descriptions, _names_and_types):
        shortened = tuple(shorten(tool) for tool in tools)
        if _tools_tokens(shortened, count) <= budget:
            return shortened
    while shortened and _tools_tokens(shortened, count) > budget:
        shortened = shortened[: -1 - len(shortened) // 4]
    return shortened


def _without_descriptions(tool: ToolDefinition) -> ToolDefinition:
    return ToolDefinition(tool.name, _cut_text(tool.description, 4, 1), _schema_without_descriptions(tool.parameters))


def _names_and_types(tool: ToolDefinition) -> ToolDefinition:
    properties = tool.parameters.get("properties")
    types = {
        name: {"type": schema["type"]} if isinstance(schema, Mapping) and "type" in schema else {}
        for name, schema in (properties if isinstance(properties, Mapping) else {}).items()
    }
    required = tool.parameters.get("required", [])
    return ToolDefinition(tool.name, "", {"type": "object", "properties": types, "required": required})


def _schema_without_descriptions(schema: Any) -> Any:
    """A schema without descriptions, except properties of that name."""
    if not isinstance(schema, Mapping):
        return schema
    stripped = {
        key: value for key, value in schema.items() if key not in ("description", "title", "examples", "default")
    }
    if isinstance(properties := stripped.get("properties"), Mapping):
        stripped["properties"] = {
            name: _schema_without_descriptions(subschema) for name, subschema in properties.items()
        }
    if "items" in stripped:
        stripped["items"] = _schema_without_descriptions(stripped["items"])
    return stripped


def _tools_tokens(tools: Sequence[ToolDefinition], count: Callable[[str], int]) -> int:
    return sum(
        count(tool.name + tool.description + json.dumps(tool.parameters, ensure_ascii=False)) + 3 * MESSAGE_TOKENS
        for tool in tools
    )


def _common_limit(token_counts: Sequence[int], budget: int) -> int:
    """The token limit for each text with which all together fit the budget."""
    remaining, limit = budget, 0
    for index, tokens in enumerate(sorted(token_counts)):
        limit = remaining // (len(token_counts) - index)
        if tokens > limit:
            return limit
        remaining -= tokens
    return max(token_counts, default=0)


def _cut_text(text: str, tokens: int, limit: int) -> str:
    """The beginning and the end of a text of `tokens` tokens, about `limit` tokens together."""
    if tokens <= limit:
        return text
    half = max(len(text) * max(limit - 2, 0) // tokens // 2, 0)
    return f"{text[:half]} ... {text[len(text) - half :]}" if half else ""


def _short_arguments(message: ChatMessage, limit: int, count: Callable[[str], int]) -> tuple[ToolCall, ...]:
    """A message's tool calls, without arguments of more than `limit` tokens."""
    return tuple(
        call if count(call.arguments) <= limit else replace(call, arguments="{}") for call in message.tool_calls
    )
