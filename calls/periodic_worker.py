"""Periodic background work: at a fixed interval, when woken, and after a failure of the database or a model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

import structlog

from config.errors import ModelError
from storage.database.duplicate_filter import DuplicateFilter
from storage.database.errors import StorageUnavailable

log = structlog.get_logger()


class PeriodicWorker:
    """Runs its work every `every_s` seconds and after each `wake`. Logs `StorageUnavailable`, of an outage
    once, and `ModelError` as `failure_event` at `level`, and runs the work again after `retry_s` seconds."""

    def __init__(
        self,
        failure_event: str,
        every_s: float,
        retry_s: float,
        level: Literal["warning", "error"] = "error",
        *,
        deprecated_field: str | None = None,
    ) -> None:
        """`deprecated_field`: a second name of the log line's `cause`."""
        self.is_due = False
        """True while the work runs because the interval is over, and not only because it was woken."""
        self._failure_event = failure_event
        self._every_s = every_s
        self._retry_s = retry_s
        self._level = level
        self._deprecated_field = deprecated_field
        self._duplicates = DuplicateFilter()
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()

    def wake(self) -> None:
        """Run the work as soon as the current run is over."""
        self._idle.clear()
        self._woken.set()

    @property
    def is_woken(self) -> bool:
        """True if `wake` was called after the current run began."""
        return self._woken.is_set()

    async def wait_idle(self) -> None:
        """Wait until a run has completed everything and `wake` was not called since it began."""
        await self._idle.wait()

    async def run(
        self,
        work: Callable[[], Awaitable[bool]],
        *,
        at_once: bool = True,
        rest: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Run until cancelled. `work` returns False while something that it started is still under way. `at_once`: the
        first run does not wait for the interval. `rest` is awaited before each run; a `wake` meanwhile counts for that
        run."""
        due_s = time.monotonic() + (0.0 if at_once else self._every_s)
        while True:
            await self._wait(due_s - time.monotonic())
            if rest is not None:
                await rest()
            self._woken.clear()
            self.is_due = time.monotonic() >= due_s
            if not await self._attempt(work):
                due_s = time.monotonic() + self._retry_s
            elif self.is_due:
                due_s = time.monotonic() + self._every_s

    async def _wait(self, timeout_s: float) -> None:
        if timeout_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._woken.wait()

    async def _attempt(self, work: Callable[[], Awaitable[bool]]) -> bool:
        """Run the work once. Returns False if it failed."""
        try:
            is_complete = await work()
            self._duplicates.reset()
            if is_complete and not self.is_woken:
                self._idle.set()
        except (StorageUnavailable, ModelError) as error:
            is_logged = isinstance(error, StorageUnavailable) and self._duplicates.is_duplicate(error)
            write = log.debug if is_logged else log.warning if self._level == "warning" else log.error
            deprecated = {self._deprecated_field: str(error)} if self._deprecated_field else {}
            write(self._failure_event, cause=str(error), again_in_s=self._retry_s, **deprecated)
            return False
        return True
