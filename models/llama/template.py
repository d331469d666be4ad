"""A talk as the text that a model was trained on: the chat template of its file, run by Jinja in a sandbox.

Templates come with models from anywhere: they see the talk and nothing else, and change nothing. What a template does
not know (tools, a system line, two lines of one speaker) is told in words that it does know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.protocols import ChatMessage, ChatPrompt, ToolDefinition

Line = dict[str, Any]
"""A message as templates know it: `role`, `content`, `tool_calls`."""

CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""For models that bring no template."""

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


class _Refused(TemplateError):
    """The template says that it cannot tell this talk."""


class _Generation(Extension):
    """`{% generation %}` marks what is trained on; to us it is only what it holds."""

    tags = {"generation"}  # noqa: RUF012 - what Jinja asks for

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """What stands between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One model's way to write a talk. Any thread."""

    def __init__(
        self, source: str | None, *, bos: str = "", eos: str = "", today: Callable[[], datetime] | None = None
    ):
        """`source` is the file's own template; None or a broken one: ChatML. `today` is asked by templates that tell
        the model the date."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: (today or _now)().strftime(form)
        try:
            self._template = environment.from_string(source or CHATML)
        except TemplateError as error:
            _log.warning("model.template_broken", error=str(error))
            source, self._template = None, environment.from_string(CHATML)
        self.knows_tools = bool(source) and "tools" in str(source)
        self.tags_calls = not self.knows_tools or "<tool_call>" in str(source)
        """Whether the model is asked to write calls between tags."""
        self._bos, self._eos = bos, eos

    def render(self, prompt: ChatPrompt) -> str:
        """The text up to where the model's answer begins. Every talk has one: what the template refuses is put in
        plainer lines until it does not."""
        for lines, tools in self._attempts(prompt):
            try:
                return self._fill(lines, tools)
            except Exception as error:  # noqa: BLE001 - a stranger's program; there is always a plainer way
                _log.debug("model.template_refused", error=str(error))
        return _chatml(_plain(_lines(prompt.system, prompt.messages), prompt.tools))

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

    def _fill(self, lines: Sequence[Line], tools: Sequence[Line]) -> str:
        # What is not there is not named: templates ask whether it is defined.
        named = {"tools": tools} if tools else {}
        return self._template.render(
            messages=lines,
            add_generation_prompt=True,
            bos_token=self._bos,
            eos_token=self._eos,
            # A caller waits: no thinking aloud before the answer, for those that let it be chosen.
            enable_thinking=False,
            **named,
        )


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
    except ValueError:
        return arguments


def _to_json(value: Any, indent: int | None = None, **_options: Mapping[str, Any]) -> str:
    """Jinja's own filter escapes for HTML, which no model was trained on."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(reason: str) -> str:
    raise _Refused(reason)


def _now() -> datetime:
    return datetime.now(UTC).astimezone()
