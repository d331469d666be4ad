"""What happens in a call, in order."""

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
    """All of an answer has been sent."""

    response: AgentResponse


@dataclass(frozen=True)
class UserIdle:
    """Neither side has for as long as the agent waits."""


ControlEvent = DtmfKeyPressed | DtmfEntry | ResponseFinished | UserIdle | HoldChanged
"""What does not come from the audio engine."""
ConversationEvent = CallEvent | ControlEvent


class EventQueue:
    """The `CallEventListener` of a call's audio, and of everything else that happens in it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ConversationEvent] = asyncio.Queue()

    def media_events(self, events: Sequence[CallEvent]) -> None:
        """From the audio engine."""
        for event in events:
            self._queue.put_nowait(event)

    def put(self, happening: ControlEvent) -> None:
        """From elsewhere on the event loop."""
        self._queue.put_nowait(happening)

    async def get(self) -> ConversationEvent:
        """The next one."""
        return await self._queue.get()

    def drain(self) -> list[ConversationEvent]:
        """What nobody has dealt with; it is taken out."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]
