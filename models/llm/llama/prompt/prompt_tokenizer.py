"""Tokenizes a conversation: removes control texts, renders the chat template, and fits the context window."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Final

import structlog

from models.llm.context_window import MESSAGE_TOKENS, cut_middle, first_message_to_keep, shorten_last_turn, turn_starts
from models.llm.llama.bindings import LlamaModel
from models.llm.llama.prompt.chat_template import ChatTemplate
from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition

_MAX_CALLS: Final = 512
_MAX_PASSES: Final = 8
_BUDGET_SHARES: Final = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Shares of the token budget to try in turn, because the tokens of a text are only estimated before rendering."""
_DIFFERENT_REPLIES: Final = ("Well", "0")
"""Two user messages without a common prefix."""

_log = structlog.get_logger()


class PromptTokenizer:
    """Tokenizes prompts for one model. Any thread."""

    def __init__(self, model: LlamaModel, template: ChatTemplate) -> None:
        self._model, self._template = model, template
        self._control_texts: re.Pattern[str] = model.control_texts
        self._dropped: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def tokens(self, prompt: ChatPrompt, max_tokens: int, *, remember_dropped: bool = True) -> list[int]:
        """The prompt's tokens, at most `max_tokens`, without the oldest turns if necessary. With `remember_dropped`
        these stay dropped, so that the call's next prompts share the prefix. Takes some milliseconds."""
        prompt = self._without_control_texts(prompt)
        dropped = self._previously_dropped(prompt) if remember_dropped else 0
        tokens = self._render(prompt, dropped)
        if len(tokens) <= max_tokens:
            return tokens
        token_counts = [self._message_tokens(message) for message in prompt.messages]
        fixed = len(tokens) - sum(token_counts[dropped:])
        dropped = first_message_to_keep(token_counts, turn_starts(prompt.messages), max_tokens - fixed, dropped)
        if remember_dropped:
            self._remember_dropped(prompt.call_id, dropped)
        _log.info("language_model.turns_left_out", call_id=prompt.call_id, messages=dropped)
        tokens = self._render(prompt, dropped)
        return tokens if len(tokens) <= max_tokens else self._shorten(prompt, dropped, max_tokens)

    def shared_prefix(self, prompt: ChatPrompt, max_tokens: int) -> list[int]:
        """The tokens of a conversation that do not depend on the caller's next message."""
        first, second = (
            self.tokens(replace(prompt, messages=[*prompt.messages, ChatMessage("user", text)]), max_tokens)
            for text in _DIFFERENT_REPLIES
        )
        length = next((index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))
        return first[:length]

    def _shorten(self, prompt: ChatPrompt, dropped: int, max_tokens: int) -> list[int]:
        """The tokens of the last turn, shortened because it alone is too long."""
        last = replace(prompt, messages=prompt.messages[dropped:])
        _log.warning("language_model.turn_cut", call_id=prompt.call_id, room=max_tokens)
        tokens: list[int] = []
        for share in _BUDGET_SHARES:
            tokens = self._render(shorten_last_turn(last, int(share * max_tokens), self._count), 0)
            if len(tokens) <= max_tokens:
                return tokens
        return cut_middle(tokens, max_tokens)

    def _render(self, prompt: ChatPrompt, dropped: int) -> list[int]:
        return self._model.tokenize(self._template.render(replace(prompt, messages=prompt.messages[dropped:])))

    def _count(self, text: str) -> int:
        return len(self._model.tokenize(text)) if text else 0

    def _message_tokens(self, message: ChatMessage) -> int:
        text = message.content + "".join(call.name + call.arguments for call in message.tool_calls)
        return self._count(text) + MESSAGE_TOKENS * (1 + len(message.tool_calls))

    def _previously_dropped(self, prompt: ChatPrompt) -> int:
        """Number of messages that were dropped the last time; 0 for another conversation."""
        with self._lock:
            dropped = self._dropped.get(prompt.call_id, 0)
        return dropped if dropped < len(prompt.messages) and prompt.messages[dropped].role != "tool" else 0

    def _remember_dropped(self, call_id: str, dropped: int) -> None:
        with self._lock:
            self._dropped[call_id] = dropped
            self._dropped.move_to_end(call_id)
            while len(self._dropped) > _MAX_CALLS:
                self._dropped.popitem(last=False)

    def _without_control_texts(self, prompt: ChatPrompt) -> ChatPrompt:
        """The prompt without control texts, so that no message can change the speaker."""
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
        text = json.dumps(parameters, ensure_ascii=False)
        with suppress(ValueError):
            parameters = json.loads(self._clean(text))
        return replace(tool, description=self._clean(tool.description), parameters=parameters)

    def _clean(self, text: str) -> str:
        for _ in range(_MAX_PASSES):
            if (clean := self._control_texts.sub("", text)) == text:
                return text
            text = clean
        return self._control_texts.sub(" ", text)  # a space cannot join to a new control text
