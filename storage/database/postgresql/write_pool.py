"""Pool of write connections. Writes with the same lock run one at a time, in the order of their calls, and those that
wait share a transaction (`storage.database.group_commit`); writes with different locks run at the same time. Locks take
turns, so that one with many writes delays no other by more than a transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from storage.database.group_commit import MAX_DEFERRABLE, MAX_GROUP, PendingWrite, WriteFailed, resolve
from storage.database.postgresql.locks import HeartbeatLock

T = TypeVar("T")
Lock = str | None


class WriteConnection(Protocol):
    """A connection with its thread."""

    async def run_group(self, lock: Lock, writes: Sequence[PendingWrite]) -> Sequence[Any]:
        """Run writes in one transaction that holds the lock; as the function of `GroupCommit`."""


@dataclass
class _Lane:
    """Waiting writes of a lock; `busy` while a transaction of it runs."""

    urgent: deque[PendingWrite] = field(default_factory=deque)
    deferrable: deque[PendingWrite] = field(default_factory=deque)
    busy: bool = False

    def __len__(self) -> int:
        return len(self.urgent) + len(self.deferrable)

    def take(self) -> tuple[list[PendingWrite], list[PendingWrite]]:
        """The writes of the next transaction: urgent ones, and deferrable ones that go along."""
        urgent = [self.urgent.popleft() for _ in range(min(MAX_GROUP, len(self.urgent)))]
        limit = MAX_DEFERRABLE if urgent else MAX_GROUP
        return urgent, [self.deferrable.popleft() for _ in range(min(limit, len(self.deferrable)))]


class WritePool:
    """Runs writes on several connections. A write without a lock (None) runs alone, as PostgreSQL's lock ensures."""

    def __init__(self, connections: Sequence[WriteConnection]) -> None:
        self._idle = list(connections)
        self._lanes: dict[Lock, _Lane] = {}
        """In the order of their turns."""
        self._running: set[asyncio.Task[None]] = set()
        self.commits = 0
        """The number of transactions that have ended."""

    @property
    def waiting(self) -> int:
        """The number of writes that have not begun."""
        return sum(map(len, self._lanes.values()))

    async def write(self, work: Callable[[sa.Connection], T], owner: str | None, lock: Lock, deferrable: bool) -> T:
        """Returns the result of `work`, once it is committed. Raises what it or the commit raises. It runs even when
        the caller is cancelled."""
        pending = PendingWrite(work, owner, asyncio.get_running_loop().create_future())
        lane = self._lanes.setdefault(lock, _Lane())
        (lane.deferrable if deferrable else lane.urgent).append(pending)
        self._begin_more()
        result: T = await pending.done
        return result

    async def wait_idle(self) -> None:
        """Wait until all writes are done."""
        while self._running:
            await asyncio.wait(set(self._running))

    def _begin_more(self) -> None:
        while self._idle and (lock := self._next()) is not ...:
            lane = self._lanes.pop(lock)
            self._lanes[lock] = lane  # its next turn is the last one
            lane.busy = True
            task = asyncio.create_task(self._run(self._idle.pop(), lock, lane), name="database transaction")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _next(self) -> Any:
        """The next lock with waiting writes, heartbeats and urgent ones first; `...`: none."""
        free = [(lock, lane) for lock, lane in self._lanes.items() if not lane.busy and len(lane)]
        heartbeat = next((lock for lock, _ in free if isinstance(lock, HeartbeatLock)), ...)
        if heartbeat is not ... or len(self._idle) == 1:
            return heartbeat
        return next((lock for lock, lane in free if lane.urgent), free[0][0] if free else ...)

    async def _run(self, connection: WriteConnection, lock: Lock, lane: _Lane) -> None:
        urgent, deferred = lane.take()
        together = [*urgent, *deferred]
        try:
            outcomes = await connection.run_group(lock, together)
        except Exception as error:  # noqa: BLE001 - it is raised to every caller of this transaction
            outcomes = [WriteFailed(error)] * len(together)
        finally:
            lane.busy = False
            self._idle.append(connection)
            self.commits += 1
        lane.urgent.extendleft(reversed(urgent[len(outcomes) :]))
        lane.deferrable.extendleft(reversed(deferred[max(0, len(outcomes) - len(urgent)) :]))
        if not lane:
            del self._lanes[lock]
        self._begin_more()
        for write, outcome in zip(together, outcomes, strict=False):
            resolve(write.done, outcome)
