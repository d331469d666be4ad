"""What the tools that end or transfer a call do in a chat, where nobody can be transferred."""

from __future__ import annotations

from calls.call_record.timeline import Timeline, ToolTiming
from calls.conversation.transfers import TransferReport
from models.protocols import END_CALL, TRANSFER_CALL
from storage.calls.transfers import TransferOrder

ENDED = "The conversation ends."
NOT_TRANSFERRED = (
    "This is a written test, in which nobody is called. In a telephone call the caller would be transferred."
)


class ChatTransfers:
    """The `Transfers` of a chat: the agent is told what a call would do, and stays with the user."""

    def __init__(self) -> None:
        self.timeline: Timeline | None = None
        """Of the conversation, once there is one."""

    async def run(self, order: TransferOrder) -> TransferReport:
        """Record the tool call; returns that nobody was called."""
        if self.timeline is not None:
            arguments = {"target": order.target, "reason": order.reason, "summary": order.summary}
            given = {name: value for name, value in arguments.items() if value is not None}
            record(self.timeline, TRANSFER_CALL, given, NOT_TRANSFERRED)
        return TransferReport(NOT_TRANSFERRED)

    def cancel(self) -> None:
        """Does nothing: `run` returns at once."""


def record_end(timeline: Timeline) -> None:
    """The agent has ended the conversation."""
    record(timeline, END_CALL, {}, ENDED)


def record(timeline: Timeline, name: str, arguments: dict[str, str], result: str) -> None:
    """Add a tool call to the newest turn."""
    now_ms = timeline.now_ms()
    timeline.turn.tools.append(ToolTiming(name, now_ms, now_ms, ok=True, arguments=dict(arguments), result=result))
