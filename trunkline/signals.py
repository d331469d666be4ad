"""What SIGTERM and SIGINT ask for."""

from __future__ import annotations

import asyncio
import signal


class StopSignals:
    """`drain` is set by SIGTERM and by the first SIGINT, `now` by the second SIGINT."""

    def __init__(self) -> None:
        self.drain = asyncio.Event()
        self.now = asyncio.Event()

    def listen(self) -> None:
        """Take the two signals over from Python; on the event loop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.drain.set)
        loop.add_signal_handler(signal.SIGINT, self._interrupted)

    def ignore(self) -> None:
        """Give the signals back."""
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)

    def _interrupted(self) -> None:
        (self.now if self.drain.is_set() else self.drain).set()
