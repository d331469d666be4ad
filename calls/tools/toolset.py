"""The tools of one call: their definitions for the language model, and the execution of its tool calls."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import structlog

from calls.call_record.timeline import CitedPassage
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.tools.arguments import MAX_REPORTED_NAME_LENGTH, InvalidArguments, parse_arguments
from calls.tools.http_response import mask_secrets
from config.errors import TrunklineError
from models.protocols import TRANSFER_CALL, ToolCall, ToolDefinition
from storage.calls.transfers import TransferOrder

MAX_NAME_LENGTH: Final = 64
"""Characters of a function's name that language models accept."""
_FUNCTION_NAME: Final = re.compile(f"[a-zA-Z0-9_-]{{1,{MAX_NAME_LENGTH}}}")
_OTHER_CHARACTERS: Final = re.compile("[^a-zA-Z0-9_-]+")

log = structlog.get_logger()


@dataclass(frozen=True)
class ToolResult:
    """The result for the model. `ok` False: the tool has failed, and `content` says why."""

    content: str
    ok: bool
    sources: tuple[CitedPassage, ...] = ()
    """The passages of documents in `content`."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """The secrets of the request, which are masked in `content`; the arguments may repeat them. Of a call that was not
    run: those of the tool, or of all tools."""
    status: int | None = field(default=None, compare=False)
    """The status of the HTTP response; None without one."""


class CallableTool(Protocol):
    """A tool that the language model can call."""

    @property
    def definition(self) -> ToolDefinition:
        """The definition for the model."""

    @property
    def has_effects(self) -> bool:
        """False if a call of it changes nothing."""

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run it with arguments that match the definition. Raises `TrunklineError` if it fails unexpectedly."""


@runtime_checkable
class ToolWithSecrets(CallableTool, Protocol):
    """A tool whose requests have secrets."""

    def secrets(self) -> frozenset[str]:
        """The secrets of its requests. Raises `TrunklineError` if they cannot be read."""


class TransferringTool(CallableTool, Protocol):
    """The tool `transfer_call`. `hold_message`: spoken before a transfer; None: no own one."""

    @property
    def hold_message(self) -> str | None:
        """Spoken to the caller before a transfer."""

    def order(self, arguments: Mapping[str, Any]) -> TransferOrder | None:
        """The order of a call with these arguments; None if there is no such target, or if it has just failed."""

    def on_failed(self, target: str) -> None:
        """A transfer to this target has failed."""

    def on_user_speaks(self) -> None:
        """The caller speaks or presses a key."""


class ToolSet:
    """The tools of one call, by name. `knowledge_prefetch` searches the agent's documents while the caller is speaking,
    before any tool does."""

    def __init__(
        self,
        tools: Sequence[CallableTool] = (),
        *,
        call_id: str | None = None,
        knowledge_prefetch: KnowledgePrefetch | None = None,
        transfer: TransferringTool | None = None,
    ) -> None:
        """`transfer`: one more tool. `call_id`: for the log. Raises `ValueError` if two tools have the same name."""
        every: list[CallableTool] = [*tools, *([] if transfer is None else [transfer])]
        self._tools: Final = {tool.definition.name: tool for tool in every}
        self._transfer: Final = transfer
        if len(self._tools) < len(every):
            raise ValueError("two tools have the same name")
        self.knowledge_prefetch: Final = knowledge_prefetch
        self._log = log.bind(call_id=call_id)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools' definitions for the prompt."""
        return tuple(tool.definition for tool in self._tools.values())

    def has_effects(self, name: str) -> bool:
        """True if a call of `name` may change something; False for an unknown tool."""
        return name in self._tools and self._tools[name].has_effects

    @property
    def hold_message(self) -> str | None:
        """Spoken to the caller before a transfer; None: no own one."""
        return None if self._transfer is None else self._transfer.hold_message

    def transfer_order(self, call: ToolCall) -> TransferOrder | None:
        """The order of a valid call of the transfer tool; None for any other call, which is to be run."""
        if self._transfer is None or call.name != TRANSFER_CALL:
            return None
        try:
            return self._transfer.order(parse_arguments(call.arguments, self._transfer.definition.parameters))
        except InvalidArguments:
            return None

    def on_transfer_failed(self, target: str) -> None:
        """A transfer to this target has failed: the model cannot try it again before the caller speaks."""
        if self._transfer is not None:
            self._transfer.on_failed(target)

    def on_user_speaks(self) -> None:
        """The caller speaks or presses a key."""
        if self._transfer is not None:
            self._transfer.on_user_speaks()

    async def run(self, call: ToolCall) -> ToolResult:
        """Run a tool. Errors of the model and failures of the tool are results, too."""
        tool = self._tools.get(call.name)
        if tool is None:
            self._log.info("tool.unknown", name=call.name[:MAX_REPORTED_NAME_LENGTH])
            message = f"There is no tool `{call.name[:MAX_REPORTED_NAME_LENGTH]}`. {self._existing_tools()}"
            return _not_run(message, *self._tools.values())
        try:
            arguments = parse_arguments(call.arguments, tool.definition.parameters)
        except InvalidArguments as error:
            self._log.info("tool.arguments_refused", name=call.name)
            return _not_run(f"`{call.name}` was not called: {error.message}.", tool)
        try:
            return await tool.run(arguments)
        except TrunklineError as error:
            self._log.error("tool.broken", name=call.name, error=str(error))
            return _not_run(f"`{call.name}` does not work at the moment.", tool)

    def _existing_tools(self) -> str:
        return f"There are: {', '.join(self._tools)}." if self._tools else "There are no tools."


def _not_run(message: str, *tools: CallableTool) -> ToolResult:
    """Returns the result of a call that was not run, whose arguments may repeat secrets of the tools."""
    secrets: set[str] = set()
    for tool in tools:
        if isinstance(tool, ToolWithSecrets):
            with suppress(TrunklineError):  # what cannot be read was never sent
                secrets |= tool.secrets()
    return ToolResult(mask_secrets(message, secrets), ok=False, secrets=frozenset(secrets))


def function_name(name: str, taken: Container[str], default: str = "tool") -> str:
    """Returns a function's name that language models accept, from a tool's own (`Look up order` becomes
    `Look_up_order`), or from `default` if no character of that is accepted. In lower case it is none of `taken`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    base = _OTHER_CHARACTERS.sub("_", plain).strip("_-")[:MAX_NAME_LENGTH] or default
    candidate, number = base, 1
    while candidate.lower() in taken:
        number += 1
        suffix = f"_{number}"
        candidate = base[: MAX_NAME_LENGTH - len(suffix)] + suffix
    return candidate


def parameter_names(own: Sequence[str]) -> dict[str, str]:
    """Returns a tool's own names of its parameters (which differ) by the names that language models accept, in the same
    order. A name that is accepted stays."""
    accepted_names = {name for name in own if _FUNCTION_NAME.fullmatch(name)}
    taken = {name.lower() for name in accepted_names}
    own_names: dict[str, str] = {}
    for name in own:
        accepted = name if name in accepted_names else function_name(name, taken, "value")
        taken.add(accepted.lower())
        own_names[accepted] = name
    return own_names
