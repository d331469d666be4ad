"""A future for text that a recognizer's thread hands to a task on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from config.errors import ModelError


class TranscriptFuture:
    """A request of `end_turn`, `flush` or `drain`, awaited on its event loop. `ends_turn`: the turn is over;
    `only_waits`: nothing is to be finalized."""

    def __init__(self, *, ends_turn: bool = False, only_waits: bool = False) -> None:
        self.ends_turn = ends_turn
        self.only_waits = only_waits
        self.word_starts_s: Sequence[float] = ()
        """See `TimesWords`. Set before `resolve`."""
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[str] = self._loop.create_future()

    def resolve(self, text: str, error: ModelError | None = None) -> None:
        """Set the result from another thread. Later results are ignored."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._set, text, error)

    def _set(self, text: str, error: ModelError | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(text)
        else:
            self.future.set_exception(error)
