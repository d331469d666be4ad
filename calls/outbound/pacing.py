"""Outbound call pacing (calls per second): spaces the INVITEs of this process, or of all nodes, by
`limits.max_outbound_per_second`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from storage.calls.calls import EndedReason


class CallRateLimit:
    """Allows `per_second` starts per second, evenly spaced: a token bucket of one token. Times are seconds of any
    monotonic clock."""

    def __init__(self, per_second: float) -> None:
        self._gap_s = 1 / per_second
        self._next_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """Returns the seconds until the next start is allowed."""
        return max(0.0, self._next_s - now_s)

    def record_start(self, now_s: float) -> None:
        """Record a start now, or too early by a timer's imprecision."""
        self._next_s = max(now_s, self._next_s) + self._gap_s


class CallPacer:
    """Starts outbound calls one after the other, in order of arrival, at a rate of `per_second`. `reserve_start`
    replaces that: it reserves the next start of all nodes, and returns the seconds until it, or raises
    `StorageUnavailable`."""

    def __init__(
        self,
        per_second: float,
        clock_s: Callable[[], float] = time.monotonic,
        reserve_start: Callable[[], Awaitable[float]] | None = None,
    ) -> None:
        self._rate_limit = CallRateLimit(per_second)
        self._clock_s = clock_s
        self._reserve_start = reserve_start
        self._reserved_s = float("-inf")
        """A start that is reserved, and not used yet if it is to come."""
        self._queue = asyncio.Lock()  # fair: in order of arrival

    async def wait(self) -> None:
        """Wait for a start. A wait that is cancelled uses up none. Raises `StorageUnavailable` if none can be
        reserved."""
        async with self._queue:
            if self._reserve_start is not None:
                await self._wait_for_reserved(self._reserve_start)
                return
            await asyncio.sleep(self._rate_limit.wait_s(self._clock_s()))
            self._rate_limit.record_start(self._clock_s())

    async def _wait_for_reserved(self, reserve_start: Callable[[], Awaitable[float]]) -> None:
        if self._reserved_s <= self._clock_s():
            wait_s = await reserve_start()
            self._reserved_s = self._clock_s() + wait_s
        await asyncio.sleep(self._reserved_s - self._clock_s())
        self._reserved_s = float("-inf")

    async def wait_unless_ending(self, ending: asyncio.Future[EndedReason]) -> bool:
        """Wait for a start. Returns False if the call ends first."""
        return await run_unless_ending(ending, self.wait())


async def run_unless_ending(ending: asyncio.Future[EndedReason], work: Coroutine[Any, Any, None]) -> bool:
    """Await `work`. Cancels it and returns False if the call ends first. Raises what `work` raises."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, ending), return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        task.cancel()
    await asyncio.wait((task,))
    if ending.done():
        return False
    task.result()
    return True
