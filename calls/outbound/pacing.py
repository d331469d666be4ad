"""Outbound call pacing: spaces the INVITEs of this process by `limits.max_outbound_per_second`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from storage.calls.calls import EndedReason


class CallRateLimit:
    """At most so many starts a second, evenly spread: a bucket that holds one token. Times are seconds of any clock
    that only goes forward."""

    def __init__(self, per_second: float) -> None:
        self._gap_s = 1 / per_second
        self._next_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """How long until the next start is allowed."""
        return max(0.0, self._next_s - now_s)

    def started(self, now_s: float) -> None:
        """Something was started now, or a timer's imprecision too early."""
        self._next_s = max(now_s, self._next_s) + self._gap_s


class CallPacer:
    """Lets calls out one after the other, in the order in which they ask, at the pace of the settings."""

    def __init__(self, per_second: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._pace = CallRateLimit(per_second)
        self._clock_s = clock_s
        self._first = asyncio.Lock()  # fair: who waits longest is next

    async def wait(self) -> None:
        """Wait for a turn. Who is cancelled meanwhile takes none from the others."""
        async with self._first:
            await asyncio.sleep(self._pace.wait_s(self._clock_s()))
            self._pace.started(self._clock_s())

    async def wait_unless_ending(self, ending: asyncio.Future[EndedReason]) -> bool:
        """Wait for a turn; False when the call is ended first."""
        return await completes_before_end(ending, self.wait())


async def completes_before_end(ending: asyncio.Future[EndedReason], waiting: Coroutine[Any, Any, None]) -> bool:
    """Wait for something; False, and it is cancelled, when the call is ended first."""
    turn = asyncio.ensure_future(waiting)
    await asyncio.wait((turn, ending), return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        turn.cancel()
    await asyncio.wait((turn,))
    return not ending.done()
