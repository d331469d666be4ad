"""Reads of what the admission of inbound calls and their start need: from the database, or while that is away from what
this node has copied, for a grace period."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import sqlalchemy as sa

from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.database.read_pool import ReadPriority

TIMEOUT_S: Final = 1.5
"""How long the database may take, while there is a copy; a connection that hangs fails later only."""
ASK_AGAIN_S: Final = 5.0
"""After a transaction that took too long the database is not asked for this time, so that an INVITE waits for one
transaction at most twice (a read and a write), and most wait for none."""

T = TypeVar("T")


class Replica(Protocol):
    """The copy of what admission needs (`storage.phone_numbers.admission_replica`)."""

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Returns the result of `work` on the copied tables. Raises `StorageUnavailable`."""


class Reads(Protocol):
    """Runs read transactions, as `Database.read`."""

    async def read(
        self, work: Callable[[sa.Connection], T], *, owner: str | None = None, priority: ReadPriority = "shared"
    ) -> T:
        """Returns the result of `work`. Raises `TrunklineError`."""


class AdmissionReads:
    """`grace_s`: how long calls are admitted from the `replica` after the database went away; 0: not at all; None: the
    database is a file, which does not go away. `now_s`: a monotonic clock."""

    def __init__(
        self,
        database: Database,
        replica: Replica | None = None,
        grace_s: float | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database: Final = database
        self._replica: Final = replica
        self._grace_s: Final = grace_s
        self._now_s: Final = now_s
        self._ask_again_s = float("-inf")

    @property
    def has_grace(self) -> bool:
        """True if calls are admitted without the database for a while."""
        return self._replica is not None and bool(self._grace_s)

    @property
    def is_away(self) -> bool:
        """True while the database is known to be away, or has just hung: it is not asked then. Heartbeats find out when
        it is back."""
        if self._grace_s is None:
            return False
        return self._database.away_since_s is not None or self._now_s() < self._ask_again_s

    async def read(
        self, work: Callable[[sa.Connection], T], *, owner: str | None = None, priority: ReadPriority = "shared"
    ) -> T:
        """As `Database.read`. Raises `StorageUnavailable` also once the grace period is over."""
        if not self.is_away:
            try:
                return await self.within_timeout(self._database.read(work, owner=owner, priority=priority))
            except TimeoutError:
                pass
            except StorageUnavailable as error:
                if not error.is_unreachable or not self.has_grace:
                    raise
        return await self._replica_in_grace().read(work)

    async def within_timeout(self, transaction: Awaitable[T]) -> T:
        """Returns the result of a transaction. Raises `TimeoutError` when it takes too long, and there is a copy; it
        goes on then."""
        if not self.has_grace:
            return await transaction
        task = asyncio.ensure_future(transaction)
        done, _ = await asyncio.wait((task,), timeout=TIMEOUT_S)
        if not done:
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            self._ask_again_s = self._now_s() + ASK_AGAIN_S
            raise TimeoutError
        return task.result()

    def _replica_in_grace(self) -> Replica:
        since_s = self._database.away_since_s
        away_s = 0.0 if since_s is None else self._now_s() - since_s
        if self._replica is None or not self._grace_s or away_s > self._grace_s:
            raise StorageUnavailable("the database is away", unreachable=True)
        return self._replica
