"""Runs a request's writes to completion when the client disconnects (asyncio.shield)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog

from config.errors import TrunklineError

T = TypeVar("T")
log = structlog.get_logger()


class ShieldedTasks:
    """The tasks that run now."""

    def __init__(self) -> None:
        self._going: set[asyncio.Task[Any]] = set()

    async def run_to_completion(self, work: Coroutine[Any, Any, T], ended: Callable[[], None] | None = None) -> T:
        """Returns the result of `work`. When the caller is cancelled, `work` goes on, and what it raises is logged.
        `ended` is called at its end."""
        task = asyncio.create_task(work)
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        if ended is not None:
            task.add_done_callback(lambda _: ended())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_error)
            raise

    @asynccontextmanager
    async def completed(self) -> AsyncIterator[None]:
        """While the block runs tasks may begin; at its end waits for all of them."""
        try:
            yield
        finally:
            while self._going:
                await asyncio.wait(self._going)


def _log_error(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, TrunklineError):  # it says all by itself, as it would have to the client
        log.warning("api.cut_off_work_failed", error=repr(error))
    elif error is not None:
        log.error("api.cut_off_work_failed", error=repr(error), exc_info=error)
