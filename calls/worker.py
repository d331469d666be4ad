"""Work in the background that is done whenever there is news, and from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from config.errors import ModelError
from storage.database.database import StorageUnavailable

log = structlog.get_logger()


class PeriodicWorker:
    """`every_s` between two rounds when nobody calls; `pause_s` after one that met trouble with the database or with a
    model, which the log tells as `trouble`."""

    def __init__(self, trouble: str, every_s: float, pause_s: float) -> None:
        self._trouble = trouble
        self._every_s = every_s
        self._pause_s = pause_s
        self._news = asyncio.Event()
        self._idle = asyncio.Event()

    def wake(self) -> None:
        """There is news."""
        self._idle.clear()
        self._news.set()

    @property
    def has_news(self) -> bool:
        """Something has come since the round began."""
        return self._news.is_set()

    async def idle(self) -> None:
        """Wait until there is no news, and nothing under way."""
        await self._idle.wait()

    async def repeat(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Do it forever; it says whether nothing is under way after it."""
        while True:
            self._news.clear()
            wait_s = self._every_s
            try:
                at_rest = await work()
                if at_rest and not self._news.is_set():
                    self._idle.set()
            except (StorageUnavailable, ModelError) as trouble:
                full = isinstance(trouble, StorageUnavailable) and trouble.disk_full  # which is told once
                (log.debug if full else log.error)(self._trouble, cause=str(trouble), again_in_s=self._pause_s)
                wait_s = self._pause_s
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
