"""The events of this node for another one, which merges them with its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_EVENTS: Final = 4000
MAX_BYTES: Final = 4 * 1024 * 1024
"""Of the events that the other node has not taken yet."""


class Overtaken(Exception):
    """The follower is so slow that events were dropped before it took them."""


@dataclass(frozen=True)
class NodeEvent:
    """An event of an organization; `data` is JSON without line breaks."""

    organization_id: str
    name: str
    data: bytes


class NodeSubscription:
    """Event loop only, except `organizations`, which is replaced and never changed."""

    def __init__(self, on_close: Callable[[NodeSubscription], None]) -> None:
        self.organizations: frozenset[str] = frozenset()
        """The organizations whose events are taken."""
        self._on_close = on_close
        self._events: deque[NodeEvent] = deque()
        self._bytes = 0
        self._overtaken = False
        self._added = asyncio.Event()

    def add(self, organization_id: str, name: str, data: bytes) -> None:
        """Add an event; more than the bounds end the subscription."""
        self._events.append(NodeEvent(organization_id, name, data))
        self._bytes += len(data)
        if len(self._events) > MAX_EVENTS or self._bytes > MAX_BYTES:
            self._overtaken, self._bytes = True, 0
            self._events.clear()
        self._added.set()

    async def take(self) -> list[NodeEvent]:
        """Wait for events; returns those since the last call. Raises `Overtaken` if some were dropped."""
        await self._added.wait()
        self._added.clear()
        if self._overtaken:
            raise Overtaken
        events = list(self._events)
        self._events.clear()
        self._bytes = 0
        return events

    def close(self) -> None:
        """Get no further events."""
        self._on_close(self)
