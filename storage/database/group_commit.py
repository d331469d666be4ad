"""Writes that share a commit. While one commit is on its way to the disk, what is handed in gathers; then it is
committed together: twenty clients that write at once wait for two commits, not for twenty. Owners take turns in a
commit, so that one who writes much keeps no other waiting. What nobody waits for, a call's progress as an example, is
patient: a few such writes go along with each commit, so that a caller who rings does not wait behind those who have
hung up."""

from __future__ import annotations

import asyncio
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
"""Patient writes in one commit, beside others."""


@dataclass(frozen=True)
class PendingWrite:
    """A piece of work, the context of its caller, whose it is (None: the server's), and where its result goes."""

    work: Work[Any]
    owner: Owner
    done: asyncio.Future[Any]
    context: Context = field(default_factory=copy_context)

    def run(self, conn: sa.Connection) -> Any:
        """Do it."""
        try:
            return self.context.run(self.work, conn)
        except StopIteration as error:  # no future takes it: the caller would wait forever
            raise RuntimeError("a transaction raised StopIteration") from error


@dataclass(frozen=True)
class WriteFailed:
    """What a piece of work raised; nothing of it is left."""

    error: BaseException


class GroupCommit:
    """`commit` runs pieces of work in their order in one transaction, each whole or not at all, and gives what each one
    returned or `Failed`, of the first ones only when they took long; it raises when nothing of them is on the disk."""

    def __init__(self, commit: Callable[[Sequence[PendingWrite]], Awaitable[Sequence[Any]]]) -> None:
        self._commit = commit
        self._waiting = FairQueue[PendingWrite]()
        self._deferrable: deque[PendingWrite] = deque()
        self._committing: asyncio.Task[None] | None = None

    async def write(self, work: Work[T], *, owner: Owner = None, deferrable: bool = False) -> T:
        """What `work` returned, once it is on the disk. Raises what it or the commit raised. It is done even when the
        caller does not wait any more. Patient ones keep their order among themselves; others overtake them."""
        mine = PendingWrite(work, owner, asyncio.get_running_loop().create_future())
        if deferrable:
            self._deferrable.append(mine)
        else:
            self._waiting.put(owner, mine)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all(), name="database commits")
        result: T = await mine.done
        return result

    async def idle(self) -> None:
        """Wait until everything that was handed in is done."""
        if self._committing is not None:
            await asyncio.shield(self._committing)

    async def _commit_all(self) -> None:
        try:
            while self._waiting or self._deferrable:
                hurried, patient = self._next()
                together = [*hurried, *patient]
                outcomes = await self._outcomes(together)
                self._put_back(hurried[len(outcomes) :], patient[max(0, len(outcomes) - len(hurried)) :])
                for write, outcome in zip(together, outcomes, strict=False):
                    _resolve(write.done, outcome)
        finally:
            self._committing = None

    def _next(self) -> tuple[list[PendingWrite], list[PendingWrite]]:
        """Those that share the next commit, and the patient ones that go along."""
        room = MAX_DEFERRABLE if self._waiting else MAX_GROUP
        hurried: list[PendingWrite] = []
        while len(hurried) < MAX_GROUP and (taken := self._waiting.take()) is not None:
            hurried.append(taken[1])
        for each in hurried:
            self._waiting.done(each.owner)
        return hurried, [self._deferrable.popleft() for _ in range(min(room, len(self._deferrable)))]

    def _put_back(self, hurried: Sequence[PendingWrite], patient: Sequence[PendingWrite]) -> None:
        """They come first in the next commit: whoever had a turn in this one has had it."""
        for each in reversed(hurried):
            self._waiting.put_back(each.owner, each)
        self._deferrable.extendleft(reversed(patient))

    async def _outcomes(self, together: Sequence[PendingWrite]) -> Sequence[Any]:
        try:
            return await self._commit(together)
        except Exception as error:  # noqa: BLE001 - it is told to everyone who waits for this commit
            return [WriteFailed(error)] * len(together)


def _resolve(done: asyncio.Future[Any], outcome: Any) -> None:
    if done.done():  # its caller was cancelled
        return
    if isinstance(outcome, WriteFailed):
        done.set_exception(outcome.error)
    else:
        done.set_result(outcome)
