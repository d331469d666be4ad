"""Threads for work that may never end, such as a system call on a network folder whose server is gone. The waiting for
it ends in time, and so does the process: nothing waits for these threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class TimedThreads:
    """At most `limit` threads at once, those that hang included."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._free = asyncio.Semaphore(limit)

    async def run(
        self, work: Callable[[], T], timeout_s: float, on_late_result: Callable[[T], None] = lambda _: None
    ) -> T:
        """Returns the result of `work`. Raises what it raises, and `TimeoutError`; then a later result goes to
        `on_late_result`, on its thread."""
        async with asyncio.timeout(timeout_s):
            await self._free.acquire()
            run = _Run(work, on_late_result, self._free.release)
            Thread(target=run, name=self._name, daemon=True).start()
            try:
                return await run.result
            finally:
                run.is_awaited = False


class _Run(Generic[T]):
    """The work of one thread."""

    def __init__(self, work: Callable[[], T], on_late_result: Callable[[T], None], on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[T] = self._loop.create_future()
        self.is_awaited = True
        self._work = work
        self._on_late_result = on_late_result
        self._on_end = on_end

    def __call__(self) -> None:
        try:
            result = self._work()
        except Exception as error:  # noqa: BLE001 - the waiting task gets it
            self._on_loop(self._end, self.result.set_exception, error)
            return
        if self.is_awaited:
            self._on_loop(self._end, self.result.set_result, result)
        else:
            self._on_loop(self._on_end)
            self._on_late_result(result)

    def _on_loop(self, *callback: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(*callback)

    def _end(self, give: Callable[[Any], None], result: Any) -> None:
        self._on_end()
        if not self.result.done():
            give(result)
        elif not isinstance(result, Exception):
            Thread(target=self._on_late_result, args=(result,), daemon=True).start()
