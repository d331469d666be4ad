"""Group commit: writes that arrive during a commit share the next one, so that twenty clients that write at once wait
for two commits instead of twenty. Owners take turns in a commit, so that one with many writes delays no other. Writes
that no caller waits for, such as a call's progress, are deferrable: each commit includes only a few of them, so that a
ringing call does not wait for ended ones."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from storage.database.fair_queue import FairQueue, Owner

T = TypeVar("T")
Work = Callable[[sa.Connection], T]
MAX_GROUP: Final = 64
"""Writes in one commit; the others wait for the next one."""
MAX_DEFERRABLE: Final = 8
"""Deferrable writes in a commit with other writes."""


@dataclass(frozen=True)
class PendingWrite:
    """A pending write, its owner (None: the server), the future of its result, and the context of its caller."""

    work: Work[Any]
    owner: Owner
    done: asyncio.Future[Any]
    context: Context = field(default_factory=copy_context)

    def run(self, conn: sa.Connection) -> Any:
        """Run it; returns its result."""
        try:
            return self.context.run(self.work, conn)
        except StopIteration as error:  # no future takes it: the caller would wait forever
            raise RuntimeError("a transaction raised StopIteration") from error


def run_each(
    writes: Sequence[PendingWrite], conn: sa.Connection, in_savepoint: Callable[[PendingWrite], Any], max_s: float
) -> list[Any]:
    """Runs the writes of a transaction in order, each in a savepoint if there are several. Returns the outcomes; only
    those of the first writes after `max_s` seconds."""
    if len(writes) == 1:
        return [writes[0].run(conn)]
    until_s = time.monotonic() + max_s
    outcomes: list[Any] = []
    for write in writes:
        if outcomes and time.monotonic() >= until_s:
            break
        outcomes.append(in_savepoint(write))
    return outcomes


@dataclass(frozen=True)
class WriteFailed:
    """The error of a write, which has been rolled back."""

    error: BaseException


class GroupCommit:
    """`commit` runs writes in order in one transaction, each in a savepoint, and returns for each its result or
    `WriteFailed`; only for the first ones when they take long. It raises when none of them is committed."""

    def __init__(self, commit: Callable[[Sequence[PendingWrite]], Awaitable[Sequence[Any]]]) -> None:
        self._commit = commit
        self._waiting = FairQueue[PendingWrite]()
        self._deferrable: deque[PendingWrite] = deque()
        self._committing: asyncio.Task[None] | None = None

    async def write(self, work: Work[T], *, owner: Owner = None, deferrable: bool = False) -> T:
        """Returns the result of `work`, once it is committed. Raises what it or the commit raises. It runs even when
        the caller is cancelled. Deferrable writes keep their order among themselves; others overtake them."""
        pending = PendingWrite(work, owner, asyncio.get_running_loop().create_future())
        if deferrable:
            self._deferrable.append(pending)
        else:
            self._waiting.put(owner, pending)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all(), name="database commits")
        result: T = await pending.done
        return result

    @property
    def waiting(self) -> int:
        """The number of writes that wait for the next commit."""
        return len(self._waiting) + len(self._deferrable)

    async def wait_idle(self) -> None:
        """Wait until all writes are done."""
        if self._committing is not None:
            await asyncio.shield(self._committing)

    async def _commit_all(self) -> None:
        try:
            while self._waiting or self._deferrable:
                urgent, deferred = self._next()
                together = [*urgent, *deferred]
                outcomes = await self._outcomes(together)
                self._put_back(urgent[len(outcomes) :], deferred[max(0, len(outcomes) - len(urgent)) :])
                for write, outcome in zip(together, outcomes, strict=False):
                    resolve(write.done, outcome)
        finally:
            self._committing = None

    def _next(self) -> tuple[list[PendingWrite], list[PendingWrite]]:
        """The writes of the next commit, and the deferrable ones that go along."""
        limit = MAX_DEFERRABLE if self._waiting else MAX_GROUP
        urgent: list[PendingWrite] = []
        while len(urgent) < MAX_GROUP and (taken := self._waiting.take()) is not None:
            urgent.append(taken[1])
        for each in urgent:
            self._waiting.mark_done(each.owner)
        return urgent, [self._deferrable.popleft() for _ in range(min(limit, len(self._deferrable)))]

    def _put_back(self, urgent: Sequence[PendingWrite], deferred: Sequence[PendingWrite]) -> None:
        """Put writes back, first in the next commit, before other owners."""
        for each in reversed(urgent):
            self._waiting.put_back(each.owner, each)
        self._deferrable.extendleft(reversed(deferred))

    async def _outcomes(self, together: Sequence[PendingWrite]) -> Sequence[Any]:
        try:
            return await self._commit(together)
        except Exception as error:  # noqa: BLE001 - it is raised to every caller of this commit
            return [WriteFailed(error)] * len(together)


def resolve(done: asyncio.Future[Any], outcome: Any) -> None:
    """Give the caller of a write its result, or raise its error there."""
    if done.done():  # its caller was cancelled
        return
    if isinstance(outcome, WriteFailed):
        done.set_exception(outcome.error)
    else:
        done.set_result(outcome)
