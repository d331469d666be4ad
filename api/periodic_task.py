"""Tasks that run while a block does, once or periodically: those of the application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import structlog

from storage.database.duplicate_filter import DuplicateFilter
from storage.database.errors import StorageUnavailable

log = structlog.get_logger()


@asynccontextmanager
async def background_task(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run `work` in a task while the block runs, and cancel it at the end."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


class PeriodicTask:
    """Runs `work` every `every_s` seconds. Every failure, and an outage of the database once, is logged as
    `failure_event`, and the work is run again after the same time."""

    def __init__(self, failure_event: str, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        self._failure_event = failure_event
        self._every_s = every_s
        self._work = work
        self._duplicates = DuplicateFilter()

    def running(self, name: str, *, at_once: bool = False) -> AbstractAsyncContextManager[None]:
        """Run it while the block runs. `at_once`: the first run does not wait for the interval."""
        return background_task(self._run(at_once), name)

    async def _run(self, at_once: bool) -> None:
        if at_once:
            await self._attempt()
        while True:
            await asyncio.sleep(self._every_s)
            await self._attempt()

    async def _attempt(self) -> None:
        try:
            await self._work()
            self._duplicates.reset()
        except StorageUnavailable as error:
            write = log.debug if self._duplicates.is_duplicate(error) else log.warning
            write(self._failure_event, cause=error.cause)
        except Exception:  # the next run may succeed
            log.exception(self._failure_event)
