"""Messages to the service manager that started the server, such as systemd: the protocol of sd_notify(3).

`READY=1` once the server takes calls, `STOPPING=1` when it drains, and `WATCHDOG=1` while the event loop and the audio
run: when these stop, the service manager restarts the server. A start and a drain extend their time-out as long as the
event loop runs, because migrations, large models and live calls take their time; that of a drain only for as long as
a drain may take.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Final

import structlog

MESSAGES_PER_WATCHDOG: Final = 3
"""Messages in the time after which the service manager takes the server for dead."""
EXTEND_EVERY_S: Final = 10.0
"""Interval of messages without a watchdog, seconds."""
EXTEND_BY_US: Final = 60_000_000
"""Each extension of the time-out of a start or a stop, microseconds."""
STOP_MARGIN_S: Final = 60.0
"""Time of a stop after the drain; later its time-out is extended no more."""
_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

log = structlog.get_logger()


class ServiceManager:
    """The service manager, if there is one; without one nothing is sent."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Takes its variables out of the environment, because they are not for the processes that the server starts."""
        address, watchdog, process = (environ.pop(name, "") for name in _VARIABLES)
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        is_mine = process in ("", str(os.getpid()))
        self._watchdog_s = int(watchdog) / 1e6 if watchdog.isdecimal() and is_mine else 0.0
        self._audio_advances: Callable[[], bool] | None = None
        self._is_stopping = self._has_failed = False
        self._stop_limit = math.inf
        """Time of the event loop from which on the time-out of a stop is not extended."""
        self._unsent: list[str] = []
        """Changes of state that the service manager has not taken yet."""

    @asynccontextmanager
    async def informed(self, drain: asyncio.Event, drain_timeout_s: float) -> AsyncIterator[None]:
        """Send messages while the block runs; `drain` is set when the server begins to stop, for which live calls have
        `drain_timeout_s`."""
        if not self._address:
            yield
            return
        tasks = [
            asyncio.create_task(self._report_alive()),
            asyncio.create_task(self._report_stop(drain, drain_timeout_s)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def ready(self, audio_advances: Callable[[], bool]) -> None:
        """The server takes calls from now on. `audio_advances` is True if the audio threads have run since its last
        call."""
        self._audio_advances = audio_advances
        if not self._is_stopping:
            self._change_state("READY=1\nSTATUS=serving")

    async def _report_stop(self, drain: asyncio.Event, drain_timeout_s: float) -> None:
        await drain.wait()
        self._is_stopping = True
        self._stop_limit = asyncio.get_running_loop().time() + drain_timeout_s + STOP_MARGIN_S
        self._change_state(f"STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC={EXTEND_BY_US}")

    async def _report_alive(self) -> None:
        while True:
            self._report()
            interval_s = self._watchdog_s / MESSAGES_PER_WATCHDOG
            await asyncio.sleep(min(interval_s or EXTEND_EVERY_S, EXTEND_EVERY_S))

    def _change_state(self, message: str) -> None:
        self._unsent.append(message)
        self._send_unsent()

    def _send_unsent(self) -> None:
        while self._unsent and self._send(self._unsent[0]):
            del self._unsent[0]

    def _report(self) -> None:
        self._send_unsent()
        is_late = asyncio.get_running_loop().time() >= self._stop_limit
        if (self._audio_advances is None or self._is_stopping) and not is_late:
            self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_BY_US}")
        # systemd's watchdog rests from STOPPING=1 on; another message would start it, and audio ends before the server.
        if self._watchdog_s and not self._is_stopping and (self._audio_advances is None or self._audio_advances()):
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> bool:
        """Send a message; returns False if the service manager does not take it now."""
        if not self._address:
            return True
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                log.warning("service.not_notified", error=error.strerror or str(error))
            return False
        return True
