"""A semaphore shared fairly by organizations: each may hold as many slots as are free, so that n greedy organizations
leave one part in n + 1 for the next one (dynamic thresholds for shared buffers, Choudhury and Hahne 1998)."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class FairSemaphore:
    """`limit` slots in all, and at most `owner_limit` for each owner. An owner gets a slot while it holds fewer than
    are free. Waiters of one owner are served in order; among owners, the one that holds the fewest slots is next. For
    the event loop only."""

    def __init__(self, limit: int, owner_limit: int | None = None) -> None:
        self._free = limit
        self._owner_limit = limit if owner_limit is None else owner_limit
        self._held = Counter[str]()
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}

    def waiter_count(self, owner: str) -> int:
        """The number of waiters of this owner."""
        return len(self._waiters.get(owner, ()))

    @asynccontextmanager
    async def slot(self, owner: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it while the block runs."""
        await self.acquire(owner)
        try:
            yield
        finally:
            self.release(owner)

    def can_acquire(self, owner: str) -> bool:
        """True if `acquire` returns at once."""
        return owner not in self._waiters and self._has_slot(owner)

    async def acquire(self, owner: str) -> None:
        """Wait for a slot and hold it until `release`."""
        if self.can_acquire(owner):
            self._take_slot(owner)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(owner, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(owner)
            else:
                self._remove_waiter(owner, waiter)
            raise

    def release(self, owner: str) -> None:
        """Give a slot back."""
        self._free += 1
        self._held[owner] -= 1
        self._held += Counter()  # only what is above 0 stays
        self._wake_waiters()

    def _has_slot(self, owner: str) -> bool:
        return self._held[owner] < min(self._free, self._owner_limit)

    def _take_slot(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] += 1

    def _wake_waiters(self) -> None:
        while eligible := [owner for owner in self._waiters if self._has_slot(owner)]:
            owner = min(eligible, key=self._held.__getitem__)  # the first of them: owners take turns
            waiters = self._waiters.pop(owner)
            waiter = waiters.popleft()
            if waiters:
                self._waiters[owner] = waiters
            if not waiter.done():  # else it was cancelled
                waiter.set_result(None)
                self._take_slot(owner)

    def _remove_waiter(self, owner: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(owner, deque())
        with suppress(ValueError):  # it was woken already
            waiters.remove(waiter)
        if not waiters:
            self._waiters.pop(owner, None)
