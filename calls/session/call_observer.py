"""What follows a call's conversation without taking part in it."""

from __future__ import annotations

from typing import Final, Protocol

from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.timeline import Timeline, ToolRun
from calls.conversation.event_queue import ConversationEvent


class CallObserver(Protocol):
    """Each method returns at once and never raises."""

    def on_event(self, event: ConversationEvent) -> None:
        """Called with each event of the conversation, before it is handled."""

    def on_turn(self, turn: FinishedTurn, timeline: Timeline) -> None:
        """Called with each finished turn, in order."""

    def on_tool(self, use: ToolRun) -> None:
        """Called when a tool of the agent begins to run, and when it has ended."""

    def on_transfer(self, on: bool) -> None:
        """Called when a transfer of the call begins, and when the caller is back with the agent."""

    def on_partial_transcript(self, text: str) -> None:
        """Called on a model's thread when the speech recognizer has other words of the caller's present turn."""


class _NoObserver:
    def on_event(self, event: ConversationEvent) -> None:
        pass

    def on_turn(self, turn: FinishedTurn, timeline: Timeline) -> None:
        pass

    def on_tool(self, use: ToolRun) -> None:
        pass

    def on_transfer(self, on: bool) -> None:
        pass

    def on_partial_transcript(self, text: str) -> None:
        pass


NO_OBSERVER: Final = _NoObserver()
"""Nobody follows the call."""


class BothObservers:
    """Two observers of a call."""

    def __init__(self, one: CallObserver, other: CallObserver) -> None:
        self._both = one, other

    def on_event(self, event: ConversationEvent) -> None:
        """See `CallObserver`."""
        for each in self._both:
            each.on_event(event)

    def on_turn(self, turn: FinishedTurn, timeline: Timeline) -> None:
        """See `CallObserver`."""
        for each in self._both:
            each.on_turn(turn, timeline)

    def on_tool(self, use: ToolRun) -> None:
        """See `CallObserver`."""
        for each in self._both:
            each.on_tool(use)

    def on_transfer(self, on: bool) -> None:
        """See `CallObserver`."""
        for each in self._both:
            each.on_transfer(on)

    def on_partial_transcript(self, text: str) -> None:
        """See `CallObserver`."""
        for each in self._both:
            each.on_partial_transcript(text)
