"""A semaphore shared by organizations: each may hold as many slots as are free, so that n organizations that take all
they can get leave one part in n + 1 to the next one (Choudhury and Hahne's dynamic thresholds for shared buffers,
1998)."""

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
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def waiting(self, owner: str) -> int:
        """The number of the owner's waiters."""
        return len(self._waiting.get(owner, ()))

    @asynccontextmanager
    async def slot(self, owner: str) -> AsyncIterator[None]:
        """Hold a slot, once there is one, while the block runs."""
        await self.acquire(owner)
        try:
            yield
        finally:
            self.release(owner)

    def can_acquire(self, owner: str) -> bool:
        """True if `acquire` returns at once."""
        return owner not in self._waiting and self._has_slot(owner)

    async def acquire(self, owner: str) -> None:
        """Wait for a slot and hold it until `release`."""
        if self.can_acquire(owner):
            self._hold(owner)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(owner)
            else:
                self._withdraw(owner, turn)
            raise

    def release(self, owner: str) -> None:
        """Give a slot back."""
        self._free += 1
        self._held[owner] -= 1
        self._held += Counter()  # only what is above 0 stays
        self._wake_waiters()

    def _has_slot(self, owner: str) -> bool:
        return self._held[owner] < min(self._free, self._owner_limit)

    def _hold(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] += 1

    def _wake_waiters(self) -> None:
        while may := [owner for owner in self._waiting if self._has_slot(owner)]:
            owner = min(may, key=self._held.__getitem__)  # the first of them: owners take turns
            turns = self._waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns
            if not turn.done():  # else its waiter has just given up
                turn.set_result(None)
                self._hold(owner)

    def _withdraw(self, owner: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(owner, deque())
        with suppress(ValueError):  # its turn had come
            turns.remove(turn)
        if not turns:
            self._waiting.pop(owner, None)
