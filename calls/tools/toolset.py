"""The tools that an agent has in a call, and the use of one of them as a language model asks for it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from calls.call_record.timeline import CitedPassage
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.tools.arguments import MAX_REPORTED_NAME, InvalidArguments, parse_arguments
from config.errors import TrunklineError
from models.protocols import ToolCall, ToolDefinition

MAX_NAME_LENGTH: Final = 64
"""Characters of a function's name, as language models take it."""
_TAKEN_BY_MODELS: Final = re.compile(f"[a-zA-Z0-9_-]{{1,{MAX_NAME_LENGTH}}}")
_NOT_IN_NAMES: Final = re.compile("[^a-zA-Z0-9_-]+")

log = structlog.get_logger()


@dataclass(frozen=True)
class ToolResult:
    """What the model is told. `ok` False: the tool has not done what was asked, `content` says why."""

    content: str
    ok: bool
    sources: tuple[CitedPassage, ...] = ()
    """The passages of documents that are in it."""


class Tool(Protocol):
    """Something that an agent can use while it talks."""

    @property
    def definition(self) -> ToolDefinition:
        """As the model sees it."""

    @property
    def effects(self) -> bool:
        """False only for what can be asked without consequences."""

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Use it with arguments that fit the definition. Raises `TrunklineError` when it breaks."""


class ToolSet:
    """The tools of one call; their names differ. `lookup` finds in the agent's documents what the caller asks for
    before any tool does."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        call_id: str | None = None,
        knowledge_prefetch: KnowledgePrefetch | None = None,
    ) -> None:
        """`call_id` is for the log. Raises `ValueError` when two tools have the same name."""
        self._tools: Final = {tool.definition.name: tool for tool in tools}
        if len(self._tools) < len(tools):
            raise ValueError("two tools have the same name")
        self.knowledge_prefetch: Final = knowledge_prefetch
        self._log = log.bind(call_id=call_id)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """For the prompt."""
        return tuple(tool.definition for tool in self._tools.values())

    def has_effects(self, name: str) -> bool:
        """Whether a call of `name` may change anything; there is nothing that a tool that does not exist could do."""
        return name in self._tools and self._tools[name].effects

    async def run(self, call: ToolCall) -> ToolResult:
        """Use a tool. What the model has done wrong, and what the tool could not do, becomes a result that says so."""
        tool = self._tools.get(call.name)
        if tool is None:
            self._log.info("tool.unknown", name=call.name[:MAX_REPORTED_NAME])
            return ToolResult(f"There is no tool `{call.name[:MAX_REPORTED_NAME]}`. {self._there_are()}", ok=False)
        try:
            arguments = parse_arguments(call.arguments, tool.definition.parameters)
        except InvalidArguments as bad:
            self._log.info("tool.arguments_refused", name=call.name)
            return ToolResult(f"`{call.name}` was not called: {bad.message}.", ok=False)
        try:
            return await tool.run(arguments)
        except TrunklineError as error:
            self._log.error("tool.broken", name=call.name, error=str(error))
            return ToolResult(f"`{call.name}` does not work at the moment.", ok=False)

    def _there_are(self) -> str:
        return f"There are: {', '.join(self._tools)}." if self._tools else "There are no tools."


def function_name(name: str, taken: Container[str], otherwise: str = "tool") -> str:
    """A name that language models take, made of a tool's own (`Look up order` becomes `Look_up_order`), or `otherwise`
    when nothing of that is left; in small letters it is none of those `taken`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    base = _NOT_IN_NAMES.sub("_", plain).strip("_-")[:MAX_NAME_LENGTH] or otherwise
    made, number = base, 1
    while made.lower() in taken:
        number += 1
        end = f"_{number}"
        made = base[: MAX_NAME_LENGTH - len(end)] + end
    return made


def parameter_names(own: Sequence[str]) -> dict[str, str]:
    """A tool's own names of its parameters (they differ) by those that language models take, in their order. Those that
    can stay do."""
    stay = {name for name in own if _TAKEN_BY_MODELS.fullmatch(name)}
    taken = {name.lower() for name in stay}
    made: dict[str, str] = {}
    for name in own:
        seen = name if name in stay else function_name(name, taken, "value")
        taken.add(seen.lower())
        made[seen] = name
    return made
