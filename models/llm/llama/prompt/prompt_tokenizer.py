"""Tokenizes a conversation for a model: cleans it, renders it by the chat template, and fits it into the context
window."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Final

import structlog

from models.llm.context_window import LINE_COST, first_kept, squeezed, turn_starts, without_middle
from models.llm.llama.bindings import Model
from models.llm.llama.prompt.chat_template import ChatTemplate
from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition

_KEPT_CALLS: Final = 512
_PASSES: Final = 8
_TIGHTER: Final = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Shares of the room that are tried one after the other: what a text costs is only about known before it is read."""
_ANYTHING: Final = ("Well", "0")
"""Two lines of a caller that have nothing in common."""

_log = structlog.get_logger()


class PromptTokenizer:
    """Reads for one model. Any thread."""

    def __init__(self, model: Model, template: ChatTemplate) -> None:
        self._model, self._template = model, template
        self._controls: re.Pattern[str] = model.control_texts
        self._dropped: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def tokens(self, prompt: ChatPrompt, room: int, *, remembers: bool = True) -> list[int]:
        """The prompt's tokens, at most `room`: a talk that has grown too long loses its oldest turns, which stay lost
        if `remembers`, so that its next prompts begin alike. Some milliseconds."""
        prompt = self._cleaned(prompt)
        dropped = self._dropped_before(prompt) if remembers else 0
        tokens = self._render(prompt, dropped)
        if len(tokens) <= room:
            return tokens
        costs = [self._cost(message) for message in prompt.messages]
        fixed = len(tokens) - sum(costs[dropped:])
        dropped = first_kept(costs, turn_starts(prompt.messages), room - fixed, dropped)
        if remembers:
            self._remember_dropped(prompt.call_id, dropped)
        _log.info("language_model.turns_left_out", call_id=prompt.call_id, messages=dropped)
        tokens = self._render(prompt, dropped)
        return tokens if len(tokens) <= room else self._squeezed(prompt, dropped, room)

    def shared_prefix(self, prompt: ChatPrompt, room: int) -> list[int]:
        """What the tokens of a talk begin with, whatever the caller says next."""
        one, other = (
            self.tokens(replace(prompt, messages=[*prompt.messages, ChatMessage("user", text)]), room)
            for text in _ANYTHING
        )
        same = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
        return one[:same]

    def _squeezed(self, prompt: ChatPrompt, dropped: int, room: int) -> list[int]:
        """The last turn alone is too long."""
        last = replace(prompt, messages=prompt.messages[dropped:])
        _log.warning("language_model.turn_cut", call_id=prompt.call_id, room=room)
        tokens: list[int] = []
        for share in _TIGHTER:
            tokens = self._render(squeezed(last, int(share * room), self._count), 0)
            if len(tokens) <= room:
                return tokens
        return without_middle(tokens, room)

    def _render(self, prompt: ChatPrompt, dropped: int) -> list[int]:
        return self._model.tokens(self._template.render(replace(prompt, messages=prompt.messages[dropped:])))

    def _count(self, text: str) -> int:
        return len(self._model.tokens(text)) if text else 0

    def _cost(self, message: ChatMessage) -> int:
        text = message.content + "".join(call.name + call.arguments for call in message.tool_calls)
        return self._count(text) + LINE_COST * (1 + len(message.tool_calls))

    def _dropped_before(self, prompt: ChatPrompt) -> int:
        """How many messages were left out the last time; none when this is another talk."""
        with self._lock:
            dropped = self._dropped.get(prompt.call_id, 0)
        return dropped if dropped < len(prompt.messages) and prompt.messages[dropped].role != "tool" else 0

    def _remember_dropped(self, call_id: str, dropped: int) -> None:
        with self._lock:
            self._dropped[call_id] = dropped
            self._dropped.move_to_end(call_id)
            while len(self._dropped) > _KEPT_CALLS:
                self._dropped.popitem(last=False)

    def _cleaned(self, prompt: ChatPrompt) -> ChatPrompt:
        """Without what would be read as control: nobody changes who speaks by what they say."""
        messages = [
            replace(
                message, content=self._clean(message.content), tool_calls=[*map(self._clean_call, message.tool_calls)]
            )
            for message in prompt.messages
        ]
        tools = tuple(map(self._clean_tool, prompt.tools))
        return replace(prompt, system=self._clean(prompt.system), messages=messages, tools=tools)

    def _clean_call(self, call: ToolCall) -> ToolCall:
        return replace(call, name=self._clean(call.name), arguments=self._clean(call.arguments))

    def _clean_tool(self, tool: ToolDefinition) -> ToolDefinition:
        parameters = dict(tool.parameters)
        written = json.dumps(parameters, ensure_ascii=False)
        with suppress(ValueError):
            parameters = json.loads(self._clean(written))
        return replace(tool, description=self._clean(tool.description), parameters=parameters)

    def _clean(self, text: str) -> str:
        for _ in range(_PASSES):
            if (clean := self._controls.sub("", text)) == text:
                return text
            text = clean
        return self._controls.sub(" ", text)  # what stands apart makes nothing new
