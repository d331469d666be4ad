"""The events of a conversation, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from calls.conversation.agent_response import AgentResponse
from calls.conversation.dtmf_collector import DtmfEntry, DtmfKeyPressed
from calls.conversation.idle_timer import HoldChanged
from media.engine.call_audio import CallEvent


@dataclass(frozen=True)
class ResponseFinished:
    """All of a response has been sent."""

    response: AgentResponse


@dataclass(frozen=True)
class UserIdle:
    """Neither side has spoken for the agent's idle time."""


ControlEvent = DtmfKeyPressed | DtmfEntry | ResponseFinished | UserIdle | HoldChanged
"""An event that does not come from the audio engine."""
ConversationEvent = CallEvent | ControlEvent


class EventQueue:
    """The `CallEventListener` of a call's audio, and the queue of all other events of its conversation."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ConversationEvent] = asyncio.Queue()

    def media_events(self, events: Sequence[CallEvent]) -> None:
        """Take events from the audio engine."""
        for event in events:
            self._queue.put_nowait(event)

    def put(self, event: ControlEvent) -> None:
        """Take an event from another part, on the event loop."""
        self._queue.put_nowait(event)

    async def get(self) -> ConversationEvent:
        """The next event."""
        return await self._queue.get()

    def drain(self) -> list[ConversationEvent]:
        """Take out all events that were not handled."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]
