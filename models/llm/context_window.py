"""Fits a conversation into a model's context window: the oldest turns are left out. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition

LINE_COST: Final = 12
"""Tokens around a message, or a tool call, at most."""
_LEFT: Final = 0.6
"""Share of the room that is filled after turns were left out: all that follows them is read anew then, so that it pays
to leave out several at once and none in the next turns."""


def turn_starts(messages: Sequence[ChatMessage]) -> list[bool]:
    """Which messages begin a turn: those of the user, or the tools that were used right before, such as what documents
    say about the user's words."""
    starts = [message.role == "user" for message in messages]
    for place in range(len(messages) - 1, 0, -1):
        before = messages[place - 1]
        if starts[place] and (before.role == "tool" or (before.tool_calls and not before.content)):
            starts[place - 1], starts[place] = True, False
    return starts


def first_kept(costs: Sequence[int], begins_turn: Sequence[bool], room: int, dropped: int) -> int:
    """The place of the first message to keep, of messages that take `costs` tokens, where `room` fit and `dropped`
    were left out the last time. Turns go whole, so that no tool's result loses its call; the last turn stays."""
    starts = [place for place, begins in enumerate(begins_turn) if begins and place >= dropped] or [dropped]
    if sum(costs[dropped:]) <= room:
        return dropped
    return next((start for start in starts if sum(costs[start:]) <= _LEFT * room), starts[-1])


def without_middle(tokens: list[int], room: int) -> list[int]:
    """A prompt that is too long even so: its beginning, which says who the agent is, and its end, which is asked."""
    if len(tokens) <= room:
        return tokens
    return tokens[: room // 2] + tokens[len(tokens) - (room - room // 2) :]


def squeezed(prompt: ChatPrompt, room: int, count: Callable[[str], int]) -> ChatPrompt:
    """A prompt whose last turn alone is too long for `room` tokens, made shorter: its tools are told in fewer words,
    what is longest is cut in its middle, and the oldest uses of tools go, calls with their results. What was asked
    last stays. `count` counts a text's tokens."""
    tools = _briefer(prompt.tools, room // 3, count)
    left = room - _tools_cost(tools, count)
    messages = _fewer(prompt.messages, left // (2 * LINE_COST))
    left = max(left - LINE_COST * sum(1 + len(message.tool_calls) for message in messages), 0)
    costs = [count(prompt.system), *(count(message.content) for message in messages)]
    longest = _level(costs, left)
    cut = [replace(message, content=_cut(message.content, cost, longest), tool_calls=_light(message, longest, count))
           for message, cost in zip(messages, costs[1:], strict=True)]  # fmt: skip
    return replace(prompt, system=_cut(prompt.system, costs[0], longest), messages=cut, tools=tools)


def _fewer(messages: Sequence[ChatMessage], most: int) -> list[ChatMessage]:
    """So many of the last ones, and what the caller said last. No result loses its call."""
    starts = [place for place, message in enumerate(messages) if message.role != "tool"]
    first = next((start for start in starts if len(messages) - start <= most), starts[-1] if starts else 0)
    asked = [place for place, message in enumerate(messages) if message.role == "user"]
    kept = [messages[asked[-1]]] if asked and asked[-1] < first else []
    return [*kept, *messages[first:]]


def _briefer(tools: Sequence[ToolDefinition], room: int, count: Callable[[str], int]) -> tuple[ToolDefinition, ...]:
    """All of them in full, else without what their parameters mean, else by name and kind alone; in the end so many
    as fit."""
    for brief in (lambda tool: tool, _without_meanings, _named):
        told = tuple(brief(tool) for tool in tools)
        if _tools_cost(told, count) <= room:
            return told
    while told and _tools_cost(told, count) > room:
        told = told[: -1 - len(told) // 4]
    return told


def _without_meanings(tool: ToolDefinition) -> ToolDefinition:
    return ToolDefinition(tool.name, _cut(tool.description, 4, 1), _bare(tool.parameters))


def _named(tool: ToolDefinition) -> ToolDefinition:
    properties = tool.parameters.get("properties")
    kinds = {
        name: {"type": schema["type"]} if isinstance(schema, Mapping) and "type" in schema else {}
        for name, schema in (properties if isinstance(properties, Mapping) else {}).items()
    }
    required = tool.parameters.get("required", [])
    return ToolDefinition(tool.name, "", {"type": "object", "properties": kinds, "required": required})


def _bare(schema: Any) -> Any:
    """A schema without its descriptions. (A property may be called like that.)"""
    if not isinstance(schema, Mapping):
        return schema
    bare = {key: value for key, value in schema.items() if key not in ("description", "title", "examples", "default")}
    if isinstance(properties := bare.get("properties"), Mapping):
        bare["properties"] = {name: _bare(each) for name, each in properties.items()}
    if "items" in bare:
        bare["items"] = _bare(bare["items"])
    return bare


def _tools_cost(tools: Sequence[ToolDefinition], count: Callable[[str], int]) -> int:
    return sum(
        count(tool.name + tool.description + json.dumps(tool.parameters, ensure_ascii=False)) + 3 * LINE_COST
        for tool in tools
    )


def _level(costs: Sequence[int], room: int) -> int:
    """The length to which all that is longer is cut, so that together they fit."""
    left, longest = room, 0
    for place, cost in enumerate(sorted(costs)):
        longest = left // (len(costs) - place)
        if cost > longest:
            return longest
        left -= cost
    return max(costs, default=0)


def _cut(text: str, cost: int, most: int) -> str:
    """The beginning and the end of a text of `cost` tokens, so that about `most` are left."""
    if cost <= most:
        return text
    half = max(len(text) * max(most - 2, 0) // cost // 2, 0)
    return f"{text[:half]} ... {text[len(text) - half :]}" if half else ""


def _light(message: ChatMessage, most: int, count: Callable[[str], int]) -> tuple[ToolCall, ...]:
    """A message's calls; what was given with them is told only where it is not long."""
    return tuple(
        call if count(call.arguments) <= most else replace(call, arguments="{}") for call in message.tool_calls
    )
