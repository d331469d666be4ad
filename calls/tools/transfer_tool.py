"""The tool `transfer_call`: the language model names one of the agent's transfer targets, never a number or a URI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from calls.tools.toolset import ToolResult
from models.protocols import TRANSFER_CALL, ToolDefinition
from storage.calls.transfers import TransferOrder
from storage.tables.agent_fields import TransferTarget

MAX_REASON_LENGTH: Final = 500
MAX_SUMMARY_LENGTH: Final = 2000
"""Characters of the reason and of the summary that are kept."""


class TransferTool:
    """Transfers the call to a target. The conversation does so once the response has been played, and adds what came of
    it as the tool's result; `run` is only called with a target that `order` refuses. `hold_message`: spoken to the
    caller before the transfer."""

    has_effects: Final = True

    def __init__(self, targets: Sequence[TransferTarget], hold_message: str | None = None) -> None:
        self._names: Final = {_key(target["name"]): target["name"] for target in targets}
        self.hold_message: Final = hold_message
        self._failed: set[str] = set()
        """The targets, without case, that have failed since the caller last spoke."""
        listed = "; ".join(f"{target['name']}: {target['description']}" for target in targets)
        self.definition: Final = ToolDefinition(
            TRANSFER_CALL,
            "Transfer the caller to a person or department. Never say that somebody is on the line or has agreed: the "
            "result tells what came of it, and the caller comes back to you if there is no connection. "
            f"Targets: {listed}",
            {
                "type": "object",
                "properties": {
                    "target": {
                        "type": "string",
                        "enum": list(self._names.values()),
                        "description": "Name of the target, exactly as listed",
                    },
                    "reason": {"type": "string", "description": "Why the caller is transferred, in a few words"},
                    "summary": {"type": "string", "description": "What the caller wants and has said so far"},
                },
                "required": ["target"],
                "additionalProperties": False,
            },
        )

    def order(self, arguments: Mapping[str, Any]) -> TransferOrder | None:
        """Returns the order of a call with these arguments; None if there is no such target, or if it has failed since
        the caller last spoke: a model must not try the same one again and again while the caller waits."""
        name = self._names.get(_key(arguments["target"]))
        if name is None or _key(name) in self._failed:
            return None
        return TransferOrder(
            target=name,
            reason=arguments.get("reason", "")[:MAX_REASON_LENGTH] or None,
            summary=arguments.get("summary", "")[:MAX_SUMMARY_LENGTH] or None,
            requested_by="agent",
        )

    def on_failed(self, target: str) -> None:
        """A transfer to this target has failed."""
        self._failed.add(_key(target))

    def on_user_speaks(self) -> None:
        """The caller speaks or presses a key: targets that have failed may be tried again."""
        self._failed.clear()

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns why there is no order with these arguments."""
        name = self._names.get(_key(arguments["target"]))
        if name is None:
            return ToolResult(f"There is no such target. There are: {', '.join(self._names.values())}.", ok=False)
        return ToolResult(
            f"The transfer to {name} has just failed and was not tried again. Tell the caller, and ask what to do.",
            ok=False,
        )


def _key(name: str) -> str:
    return name.strip().casefold()
