"""Process signals: SIGTERM and SIGINT stop the server, SIGHUP reloads certificates."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


class ProcessSignals:
    """`drain` is set by SIGTERM and by the first SIGINT, `stop_now` by the second SIGINT."""

    def __init__(self) -> None:
        self.drain = asyncio.Event()
        self.stop_now = asyncio.Event()
        self.on_sighup: Callable[[], None] | None = None
        """Called at SIGHUP: reloads what can change without a restart."""

    def install(self) -> None:
        """Install the signal handlers on the running event loop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.drain.set)
        loop.add_signal_handler(signal.SIGINT, self._on_sigint)
        loop.add_signal_handler(signal.SIGHUP, self._on_sighup)

    def remove(self) -> None:
        """Remove the signal handlers."""
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGHUP)

    def _on_sighup(self) -> None:
        if self.on_sighup:
            self.on_sighup()

    def _on_sigint(self) -> None:
        (self.stop_now if self.drain.is_set() else self.drain).set()
