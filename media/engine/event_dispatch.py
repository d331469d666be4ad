"""Dispatches events from the tick thread to the event loop: one post for all events of a tick."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from media.engine.call_audio import AudioFailure, CallAudio, CallEvent
from media.turn_taking.events import BargeIn

_log = structlog.get_logger()

Post = Callable[[Callable[[], None]], object]
"""Runs a function on the event loop: `loop.call_soon_threadsafe`."""


class EventDispatcher:
    """Collects the events of a tick. `on_failure` is called on the event loop when a listener raises."""

    def __init__(self, post: Post, on_failure: Callable[[CallAudio, Exception], None]) -> None:
        self._post = post
        self._on_failure = on_failure
        self._batch: list[tuple[CallAudio, CallEvent]] = []

    def put(self, call: CallAudio, event: CallEvent) -> None:
        """Add an event of the current tick."""
        self._batch.append((call, event))

    def send(self) -> None:
        """Post the collected events."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        try:
            self._post(partial(self._deliver, batch))
        except RuntimeError as error:  # the loop is closed
            _log.warning("media.events_lost", events=len(batch), error=str(error))

    def _deliver(self, batch: list[tuple[CallAudio, CallEvent]]) -> None:
        """On the event loop: passes each call its events of the tick at once."""
        events: dict[CallAudio, list[CallEvent]] = {}
        for call, event in batch:
            events.setdefault(call, []).append(event)
        for call, call_events in events.items():
            try:
                call.listener.on_media_events(call_events)
            except Exception as error:  # noqa: BLE001 - a listener that fails ends its own call
                _log.error("media.listener_failed", slot=call.slot, error=repr(error), exc_info=error)
                if not any(isinstance(event, AudioFailure) for event in call_events):
                    self._on_failure(call, error)
            if any(isinstance(event, BargeIn) for event in call_events):
                call.playout.unblock()
