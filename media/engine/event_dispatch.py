"""Dispatches events from the tick thread to the event loop: one post for all events of a tick."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from media.engine.call_audio import AudioFailure, CallAudio, CallEvent
from media.turns.events import BargeIn

_log = structlog.get_logger()

Post = Callable[[Callable[[], None]], object]
"""Runs a function on the event loop: `loop.call_soon_threadsafe`."""


class EventDispatcher:
    """Gathers the events of a tick. `on_failure` is told, on the event loop, of a listener that raised."""

    def __init__(self, post: Post, on_failure: Callable[[CallAudio, Exception], None]) -> None:
        self._post = post
        self._on_failure = on_failure
        self._batch: list[tuple[CallAudio, CallEvent]] = []

    def put(self, call: CallAudio, event: CallEvent) -> None:
        """Add an event of the present tick."""
        self._batch.append((call, event))

    def send(self) -> None:
        """Post what was put."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        try:
            self._post(partial(self._deliver, batch))
        except RuntimeError as error:  # the loop is closed: nobody is left to hear it
            _log.warning("media.events_lost", events=len(batch), error=str(error))

    def _deliver(self, batch: list[tuple[CallAudio, CallEvent]]) -> None:
        """On the event loop: each call gets its events of the tick at once."""
        events: dict[CallAudio, list[CallEvent]] = {}
        for call, event in batch:
            events.setdefault(call, []).append(event)
        for call, own in events.items():
            try:
                call.listener.media_events(own)
            except Exception as error:  # noqa: BLE001 - a listener that fails ends its own call
                _log.error("media.listener_failed", slot=call.slot, error=repr(error), exc_info=error)
                if not any(isinstance(event, AudioFailure) for event in own):
                    self._on_failure(call, error)
            if any(isinstance(event, BargeIn) for event in own):
                call.playout.unblock()
