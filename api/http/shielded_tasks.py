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
    """The shielded tasks that run now."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run_to_completion(self, work: Coroutine[Any, Any, T], on_end: Callable[[], None] | None = None) -> T:
        """Returns the result of `work`. If the awaiting task is cancelled, `work` goes on, and its exception is logged.
        Calls `on_end` when `work` has ended."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if on_end is not None:
            task.add_done_callback(lambda _: on_end())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_error)
            raise

    @asynccontextmanager
    async def wait_at_exit(self) -> AsyncIterator[None]:
        """Wait for all tasks at the end of the block."""
        try:
            yield
        finally:
            while self._tasks:
                await asyncio.wait(self._tasks)


def _log_error(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, TrunklineError):  # a domain error needs no traceback
        log.warning("api.cut_off_work_failed", error=repr(error))
    elif error is not None:
        log.error("api.cut_off_work_failed", error=repr(error), exc_info=error)
