"""The event queue of a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calls.conversation.agent_response import AgentResponse
from calls.conversation.dtmf_collector import DtmfEntry, DtmfKeyPressed
from calls.conversation.idle_timer import HoldChanged
from calls.conversation.tool_loop import StartTransfer
from calls.conversation.transfers import TransferReport
from media.engine.call_audio import CallEvent
from storage.calls.transfers import TransferOrder


@dataclass(frozen=True)
class ResponseFinished:
    """All of a response has been sent."""

    response: AgentResponse


@dataclass(frozen=True)
class UserIdle:
    """Neither side has spoken for the agent's idle time."""


@dataclass(frozen=True)
class TransferRequested:
    """A client asks for a transfer of the call."""

    order: TransferOrder


@dataclass(frozen=True)
class NoteReceived:
    """A person who follows the call, `author`, writes a note to the agent, which the caller does not hear."""

    text: str
    author: str


@dataclass(frozen=True)
class TransferFailed:
    """A transfer has ended and the caller is still with the agent."""

    start: StartTransfer
    report: TransferReport


ControlEvent = (
    DtmfKeyPressed
    | DtmfEntry
    | ResponseFinished
    | UserIdle
    | HoldChanged
    | TransferRequested
    | TransferFailed
    | NoteReceived
)
"""An event that does not come from the audio engine."""
ConversationEvent = CallEvent | ControlEvent


class EventQueue:
    """The events of a conversation, in order. It is the `CallEventListener` of the call's audio."""

    def __init__(self, on_event: Callable[[ConversationEvent], None] = lambda _: None) -> None:
        """`on_event` is called with each event before it is handled."""
        self._on_event = on_event
        self._queue: asyncio.Queue[ConversationEvent] = asyncio.Queue()

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Put events of the audio engine."""
        for event in events:
            self._queue.put_nowait(event)

    def put(self, event: ControlEvent) -> None:
        """Put an event of another part, on the event loop."""
        self._queue.put_nowait(event)

    async def get(self) -> ConversationEvent:
        """Wait for the next event and return it."""
        event = await self._queue.get()
        self._on_event(event)
        return event

    @property
    def is_empty(self) -> bool:
        """True if every event was taken."""
        return self._queue.empty()

    def drain(self) -> list[ConversationEvent]:
        """Remove all events that were not handled, and return them."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]
