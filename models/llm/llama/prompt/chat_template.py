"""Renders a conversation by the chat template of a model's file, run by Jinja in a sandbox.

Templates come with models from anywhere: they see the talk and nothing else, and change nothing. What a template does
not know (tools, a system line, two lines of one speaker) is told in words that it does know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from jinja2 import Template

from models.llm.llama.prompt.template_sandbox import BoundedEnvironment, LimitExceeded
from models.llm.llama.special_tokens import THINKING_ENDS
from models.protocols import ChatMessage, ChatPrompt, ToolDefinition

Line = dict[str, Any]
"""A message as templates know it: `role`, `content`, `tool_calls`."""

LONGEST: Final = 200_000
"""Characters of a template; what is longer is none."""
_TOOLS: Final = """

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
    """One model's way to write a talk. Any thread."""

    def __init__(
        self, source: str | None, *, bos: str = "", eos: str = "", today: Callable[[], datetime] | None = None
    ):
        """`source` is the file's own template; None, a broken one or one without an end: ChatML. `today` is asked by
        templates that tell the model the date."""
        self._environment = BoundedEnvironment()
        self._environment.globals["strftime_now"] = lambda form: (today or _now)().strftime(form)
        self._template: Template | None = None
        if source and len(source) <= LONGEST:
            try:
                with self._environment.bounded(source):
                    self._template = self._environment.from_string(source)
            except Exception as error:  # noqa: BLE001 - a stranger's program
                _log.warning("model.template_broken", error=repr(error))
        source = source if self._template is not None else None
        self.knows_tools = bool(source) and "tools" in str(source)
        self.tags_calls = not self.knows_tools or "<tool_call>" in str(source)
        """Whether the model is asked to write calls between tags."""
        self._bos, self._eos = bos, eos

    def render(self, prompt: ChatPrompt) -> str:
        """The text up to where the model's answer begins. Every talk has one: what the template refuses is put in
        plainer lines until it does not."""
        template = self._template
        attempts = self._attempts(prompt)
        too_deep: RecursionError | None = None
        while template is not None and (attempt := next(attempts, None)) is not None:
            try:
                return _thoughtless(self._fill(template, *attempt))
            except LimitExceeded as error:
                self._give_up(error)
                break
            except Exception as error:  # noqa: BLE001 - a stranger's program; there is always a plainer way
                _log.debug("model.template_refused", error=str(error))
                too_deep = error if isinstance(error, RecursionError) else None
        if too_deep is not None:  # with plain lines, too: it is not for what a caller has said
            self._give_up(too_deep)
        return _chatml(_plain(_lines(prompt.system, prompt.messages), prompt.tools))

    def _give_up(self, error: Exception) -> None:
        _log.error("model.template_unbounded", error=str(error))
        self._template = None

    def _attempts(self, prompt: ChatPrompt) -> Iterator[tuple[list[Line], list[Line]]]:
        """Messages and tools, as they are and then ever plainer."""
        lines = _lines(prompt.system, prompt.messages)
        if self.knows_tools or not (prompt.tools or any(message.role == "tool" for message in prompt.messages)):
            tools = [_signature(tool) for tool in prompt.tools]
            yield lines, tools
            yield _alternating(lines), tools
        plain = _plain(lines, prompt.tools)
        yield _alternating(plain), []
        yield _alternating(_folded(plain)), []

    def _fill(self, template: Template, lines: Sequence[Line], tools: Sequence[Line]) -> str:
        # What is not there is not named: templates ask whether it is defined.
        named = {"tools": tools} if tools else {}
        with self._environment.bounded([*lines, *tools]):
            return template.render(
                messages=lines,
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
                # A caller waits: no thinking aloud before the answer, for those that let it be chosen.
                enable_thinking=False,
                thinking=False,
                reasoning_effort="low",
                **named,
            )


def _thoughtless(text: str) -> str:
    """Ends the thought that a template begins in the model's stead."""
    written = text.rstrip()
    ends = (end for begins, end in THINKING_ENDS.items() if written.endswith(begins))
    return next((written + end for end in ends), text)


def _lines(system: str, messages: Sequence[ChatMessage]) -> list[Line]:
    lines: list[Line] = [{"role": "system", "content": system}] if system else []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        line: Line = {"role": message.role, "content": message.content}
        if message.tool_calls:
            line["tool_calls"] = [
                {
                    "type": "function",
                    "id": call.id,
                    "function": {"name": call.name, "arguments": _object(call.arguments)},
                }
                for call in message.tool_calls
            ]
        if message.role == "tool":
            line |= {"tool_call_id": message.tool_call_id, "name": names.get(message.tool_call_id or "", "")}
        lines.append(line)
    return lines


def _plain(lines: Sequence[Line], tools: Sequence[ToolDefinition]) -> list[Line]:
    """Without anything but text: tools are explained to the system, calls and results are written out."""
    told: list[Line] = []
    for line in lines:
        content = line["content"]
        calls = [json.dumps(call["function"], ensure_ascii=False) for call in line.get("tool_calls", ())]
        content = "\n".join([content, *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)]).strip("\n")
        if line["role"] == "tool":
            told.append({"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"})
        else:
            told.append({"role": line["role"], "content": content})
    if tools:
        signatures = "\n".join(json.dumps(_signature(tool), ensure_ascii=False) for tool in tools)
        explained = _TOOLS.format(signatures=signatures)
        if told and told[0]["role"] == "system":
            told[0] = {"role": "system", "content": told[0]["content"] + explained}
        else:
            told.insert(0, {"role": "system", "content": explained.strip()})
    return told


def _alternating(lines: Sequence[Line]) -> list[Line]:
    """Lines of one speaker in a row become one, unless they hold more than words; after the system the user begins."""
    told: list[Line] = []
    for line in lines:
        if told and told[-1]["role"] == line["role"] and told[-1].keys() | line.keys() == {"role", "content"}:
            told[-1] = {"role": line["role"], "content": f"{told[-1]['content']}\n\n{line['content']}"}
            continue
        if line["role"] == "assistant" and (not told or told[-1]["role"] == "system"):
            told.append({"role": "user", "content": "(The call begins.)"})
        told.append(line)
    return told


def _folded(lines: Sequence[Line]) -> list[Line]:
    """The system's line as part of the first user's."""
    if not lines or lines[0]["role"] != "system":
        return list(lines)
    return [{"role": "user", "content": lines[0]["content"]}, *lines[1:]]


def _chatml(lines: Sequence[Line]) -> str:
    written = "".join(f"<|im_start|>{line['role']}\n{line['content']}<|im_end|>\n" for line in lines)
    return f"{written}<|im_start|>assistant\n"


def _signature(tool: ToolDefinition) -> Line:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _object(arguments: str) -> Any:
    """Arguments as templates want them; as they are when they are no JSON."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _now() -> datetime:
    return datetime.now(UTC).astimezone()
