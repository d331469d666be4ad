"""The typed words of a chat, in place of the caller's speech: they come as a turn whose words are known at its end."""

from __future__ import annotations

from collections.abc import Callable

from calls.conversation.event_queue import EventQueue
from media.audio_port import Samples
from media.turn_taking.events import SpeechStarted, TurnEnded


class TypedInput:
    """A `SpeechToTextStream` whose words are typed. `now_ms` is the clock of the conversation."""

    def __init__(self, events: EventQueue, now_ms: Callable[[], float]) -> None:
        self._events = events
        self._now_ms = now_ms
        self._text = ""

    def type(self, text: str) -> None:
        """Put a complete turn with these words."""
        self._text = text
        at_ms = self._now_ms()
        self._events.on_media_events((SpeechStarted(at_ms, at_ms), TurnEnded(at_ms, at_ms, at_ms, "typed")))

    def feed(self, samples: Samples) -> None:
        """Ignores audio."""

    def partial(self) -> str:
        """Nothing: the words come at once."""
        return ""

    async def flush(self) -> str:
        """Returns the words that were typed last."""
        return self._text

    async def end_turn(self) -> str:
        """Returns the words that were typed last."""
        text, self._text = self._text, ""
        return text

    def reset(self) -> None:
        """Forgets the words."""
        self._text = ""

    def close(self) -> None:
        """Does nothing."""
