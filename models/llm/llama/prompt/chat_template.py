"""Renders a conversation by the chat template of a model's file, with Jinja in a sandbox.

Templates are untrusted: they see the conversation and nothing else. What a template does not support (tools, a system
message, two messages of one role in a row) is expressed by messages that it supports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from jinja2 import Template

from models.llm.llama.prompt.template_sandbox import BoundedEnvironment, LimitExceeded
from models.llm.llama.special_tokens import THINKING_END_TEXTS
from models.protocols import ChatMessage, ChatPrompt, ToolDefinition

TemplateMessage = dict[str, Any]
"""A message for templates: `role`, `content`, `tool_calls`."""

MAX_TEMPLATE_CHARACTERS: Final = 200_000
"""Characters of a template; a longer one is not used."""
_TOOLS_PROMPT: Final = """

# Tools

You may call functions to help the caller. Their signatures:
<tools>
{signatures}
</tools>

To call one, answer with nothing but its name and arguments as JSON between tags:
<tool_call>
{{"name": <name>, "arguments": <arguments>}}
</tool_call>"""
_log = structlog.get_logger()


class ChatTemplate:
    """The chat template of one model. Any thread."""

    def __init__(
        self, source: str | None, *, bos: str = "", eos: str = "", today: Callable[[], datetime] | None = None
    ):
        """`source`: the file's template; ChatML for None, and for a template that is invalid or does not terminate.
        `today`: the clock for templates with a date."""
        self._environment = BoundedEnvironment()
        self._environment.globals["strftime_now"] = lambda form: (today or _now)().strftime(form)
        self._template: Template | None = None
        if source and len(source) <= MAX_TEMPLATE_CHARACTERS:
            try:
                with self._environment.bounded(source):
                    self._template = self._environment.from_string(source)
            except Exception as error:  # noqa: BLE001 - an untrusted program
                _log.warning("model.template_broken", error=repr(error))
        source = source if self._template is not None else None
        self.supports_tools = bool(source) and "tools" in str(source)
        self.uses_call_tags = not self.supports_tools or "<tool_call>" in str(source)
        """True if the template has the model write calls between tags."""
        self._bos, self._eos = bos, eos

    def render(self, prompt: ChatPrompt) -> str:
        """The prompt's text up to the model's response. Messages that the template rejects are simplified until it
        accepts them."""
        template = self._template
        attempts = self._attempts(prompt)
        too_deep: RecursionError | None = None
        while template is not None and (attempt := next(attempts, None)) is not None:
            try:
                return _close_thinking(self._render_template(template, *attempt))
            except LimitExceeded as error:
                self._disable_template(error)
                break
            except Exception as error:  # noqa: BLE001 - an untrusted program, and a simpler attempt follows
                _log.debug("model.template_refused", error=str(error))
                too_deep = error if isinstance(error, RecursionError) else None
        if too_deep is not None:  # also with the simplest messages: the fault is the template's
            self._disable_template(too_deep)
        return _chatml(_as_text(_template_messages(prompt.system, prompt.messages), prompt.tools))

    def _disable_template(self, error: Exception) -> None:
        _log.error("model.template_unbounded", error=str(error))
        self._template = None

    def _attempts(self, prompt: ChatPrompt) -> Iterator[tuple[list[TemplateMessage], list[TemplateMessage]]]:
        """Messages and tools to render, each time simpler."""
        messages = _template_messages(prompt.system, prompt.messages)
        if self.supports_tools or not (prompt.tools or any(message.role == "tool" for message in prompt.messages)):
            tools = [_tool_schema(tool) for tool in prompt.tools]
            yield messages, tools
            yield _alternate_roles(messages), tools
        as_text = _as_text(messages, prompt.tools)
        yield _alternate_roles(as_text), []
        yield _alternate_roles(_system_into_user(as_text)), []

    def _render_template(
        self, template: Template, messages: Sequence[TemplateMessage], tools: Sequence[TemplateMessage]
    ) -> str:
        # Absent values are left out, because templates test whether they are defined.
        optional = {"tools": tools} if tools else {}
        with self._environment.bounded([*messages, *tools]):
            return template.render(
                messages=messages,
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
                # No thinking before the response, because a caller waits; for templates that have the option.
                enable_thinking=False,
                thinking=False,
                reasoning_effort="low",
                **optional,
            )


def _close_thinking(text: str) -> str:
    """The text with the thinking closed that a template opens."""
    stripped = text.rstrip()
    ends = (end for opening, end in THINKING_END_TEXTS.items() if stripped.endswith(opening))
    return next((stripped + end for end in ends), text)


def _template_messages(system: str, messages: Sequence[ChatMessage]) -> list[TemplateMessage]:
    rendered: list[TemplateMessage] = [{"role": "system", "content": system}] if system else []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        fields: TemplateMessage = {"role": message.role, "content": message.content}
        if message.tool_calls:
            fields["tool_calls"] = [
                {
                    "type": "function",
                    "id": call.id,
                    "function": {"name": call.name, "arguments": _parse_arguments(call.arguments)},
                }
                for call in message.tool_calls
            ]
        if message.role == "tool":
            fields |= {"tool_call_id": message.tool_call_id, "name": names.get(message.tool_call_id or "", "")}
        rendered.append(fields)
    return rendered


def _as_text(messages: Sequence[TemplateMessage], tools: Sequence[ToolDefinition]) -> list[TemplateMessage]:
    """Messages of text only: tools are described in the system message, calls and results are written out."""
    merged: list[TemplateMessage] = []
    for message in messages:
        content = message["content"]
        calls = [json.dumps(call["function"], ensure_ascii=False) for call in message.get("tool_calls", ())]
        content = "\n".join([content, *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)]).strip("\n")
        if message["role"] == "tool":
            merged.append({"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"})
        else:
            merged.append({"role": message["role"], "content": content})
    if tools:
        signatures = "\n".join(json.dumps(_tool_schema(tool), ensure_ascii=False) for tool in tools)
        tools_prompt = _TOOLS_PROMPT.format(signatures=signatures)
        if merged and merged[0]["role"] == "system":
            merged[0] = {"role": "system", "content": merged[0]["content"] + tools_prompt}
        else:
            merged.insert(0, {"role": "system", "content": tools_prompt.strip()})
    return merged


def _alternate_roles(messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
    """Messages with alternating roles: text messages of one role in a row are merged, and the user begins."""
    merged: list[TemplateMessage] = []
    for message in messages:
        if (
            merged
            and merged[-1]["role"] == message["role"]
            and merged[-1].keys() | message.keys() == {"role", "content"}
        ):
            merged[-1] = {"role": message["role"], "content": f"{merged[-1]['content']}\n\n{message['content']}"}
            continue
        if message["role"] == "assistant" and (not merged or merged[-1]["role"] == "system"):
            merged.append({"role": "user", "content": "(The call begins.)"})
        merged.append(message)
    return merged


def _system_into_user(messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
    """The system message as part of the first user message."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    return [{"role": "user", "content": messages[0]["content"]}, *messages[1:]]


def _chatml(messages: Sequence[TemplateMessage]) -> str:
    text = "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)
    return f"{text}<|im_start|>assistant\n"


def _tool_schema(tool: ToolDefinition) -> TemplateMessage:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _parse_arguments(arguments: str) -> Any:
    """Parsed JSON arguments; the text itself if it is no JSON."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _now() -> datetime:
    return datetime.now(UTC).astimezone()
