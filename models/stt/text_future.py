"""A text that a recognizer's thread hands to a task that waits for it on an event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from config.errors import ModelError


class TextFuture:
    """A caller of `end_turn`, `flush` or `decoded` that waits on its event loop. `ends`: the turn is over;
    `only_waits`: nothing is to be done."""

    def __init__(self, *, ends: bool = False, only_waits: bool = False) -> None:
        self.ends = ends
        self.only_waits = only_waits
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[str] = self._loop.create_future()

    def resolve(self, text: str, error: ModelError | None = None) -> None:
        """Hand the result over from another thread. The first one counts."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._set, text, error)

    def _set(self, text: str, error: ModelError | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(text)
        else:
            self.future.set_exception(error)
