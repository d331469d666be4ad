"""Outbound call pacing: spaces the INVITEs of this process by `limits.max_outbound_per_second`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from storage.calls.calls import EndedReason


class CallRateLimit:
    """At most `per_second` starts a second, evenly spaced: a token bucket of one token. Times are seconds of any
    monotonic clock."""

    def __init__(self, per_second: float) -> None:
        self._gap_s = 1 / per_second
        self._next_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next start is allowed."""
        return max(0.0, self._next_s - now_s)

    def started(self, now_s: float) -> None:
        """A call was started now, or a timer's imprecision too early."""
        self._next_s = max(now_s, self._next_s) + self._gap_s


class CallPacer:
    """Lets outbound calls go one after the other, in the order in which they wait, at the rate of the settings."""

    def __init__(self, per_second: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._rate_limit = CallRateLimit(per_second)
        self._clock_s = clock_s
        self._first = asyncio.Lock()  # fair: the longest waiting call is next

    async def wait(self) -> None:
        """Wait for a start. A call that is cancelled meanwhile uses up none."""
        async with self._first:
            await asyncio.sleep(self._rate_limit.wait_s(self._clock_s()))
            self._rate_limit.started(self._clock_s())

    async def wait_unless_ending(self, ending: asyncio.Future[EndedReason]) -> bool:
        """Wait for a start. Returns False when the call is ended first."""
        return await completes_before_end(ending, self.wait())


async def completes_before_end(ending: asyncio.Future[EndedReason], work: Coroutine[Any, Any, None]) -> bool:
    """Await `work`. Returns False, and cancels it, when the call is ended first."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, ending), return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        task.cancel()
    await asyncio.wait((task,))
    return not ending.done()
