"""Pace of what is stored after an outage, so that it delays no new calls, and not all nodes write at once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

REPLAYS_PER_S: Final = 50.0
"""Ends of calls that a node stores per second after an outage, on average."""


class ReplayPace:
    """Lets one replay begin after another, with jitter. Time comes from `now_s`, and passes by `sleep`."""

    def __init__(
        self,
        per_s: float = REPLAYS_PER_S,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._interval_s: Final = 1 / per_s
        self._now_s: Final = now_s
        self._sleep: Final = sleep
        self._next_s = float("-inf")

    async def turn(self) -> None:
        """Wait for a turn."""
        now_s = self._now_s()
        at_s = max(now_s, self._next_s)
        self._next_s = at_s + random.uniform(0.5, 1.5) * self._interval_s
        if at_s > now_s:
            await self._sleep(at_s - now_s)
