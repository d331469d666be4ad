"""What SIGTERM, SIGINT and SIGHUP ask for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


class StopSignals:
    """`drain` is set by SIGTERM and by the first SIGINT, `now` by the second SIGINT."""

    def __init__(self) -> None:
        self.drain = asyncio.Event()
        self.now = asyncio.Event()
        self.on_hangup: Callable[[], None] | None = None
        """What SIGHUP asks for: to read again what may be renewed without a restart."""

    def listen(self) -> None:
        """Take the signals over from Python; on the event loop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.drain.set)
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)

    def ignore(self) -> None:
        """Give the signals back."""
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGHUP)

    def _hung_up(self) -> None:
        if self.on_hangup:
            self.on_hangup()

    def _interrupted(self) -> None:
        (self.now if self.drain.is_set() else self.drain).set()
