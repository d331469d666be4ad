"""Writes that share a commit. While one commit is on its way to the disk, what is handed in gathers; then it is
committed together: twenty clients that write at once wait for two commits, not for twenty. What nobody waits for, a
call's progress as an example, is patient: a few such writes go along with each commit, so that a caller who rings does
not wait behind those who have hung up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import sqlalchemy as sa

T = TypeVar("T")
Work = Callable[[sa.Connection], T]
MOST_TOGETHER: Final = 64
"""Writes in one commit; the others wait for the next one."""
MOST_PATIENT: Final = 8
"""Patient writes in one commit, beside others."""


@dataclass(frozen=True)
class Write:
    """A piece of work, the context of its caller, and where its result goes."""

    work: Work[Any]
    done: asyncio.Future[Any]
    context: Context = field(default_factory=copy_context)

    def run(self, conn: sa.Connection) -> Any:
        """Do it."""
        try:
            return self.context.run(self.work, conn)
        except StopIteration as error:  # no future takes it: the caller would wait forever
            raise RuntimeError("a transaction raised StopIteration") from error


@dataclass(frozen=True)
class Failed:
    """What a piece of work raised; nothing of it is left."""

    error: BaseException


class GroupCommit:
    """`commit` runs pieces of work in their order in one transaction, each whole or not at all, and gives what each one
    returned or `Failed`; it raises when nothing of them is on the disk."""

    def __init__(self, commit: Callable[[Sequence[Write]], Awaitable[Sequence[Any]]]) -> None:
        self._commit = commit
        self._gathered: list[Write] = []
        self._patient: list[Write] = []
        self._committing: asyncio.Task[None] | None = None

    async def write(self, work: Work[T], *, patient: bool = False) -> T:
        """What `work` returned, once it is on the disk. Raises what it or the commit raised. It is done even when the
        caller does not wait any more. Patient ones keep their order among themselves; others overtake them."""
        mine = Write(work, asyncio.get_running_loop().create_future())
        (self._patient if patient else self._gathered).append(mine)
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
            while together := self._next():
                for write, outcome in zip(together, await self._outcomes(together), strict=True):
                    _tell(write.done, outcome)
        finally:
            self._committing = None

    def _next(self) -> Sequence[Write]:
        """Those that share the next commit."""
        room = MOST_PATIENT if self._gathered else MOST_TOGETHER
        gathered, patient = self._gathered[:MOST_TOGETHER], self._patient[:room]
        del self._gathered[:MOST_TOGETHER], self._patient[:room]
        return gathered + patient

    async def _outcomes(self, together: Sequence[Write]) -> Sequence[Any]:
        try:
            return await self._commit(together)
        except Exception as error:  # noqa: BLE001 - it is told to everyone who waits for this commit
            return [Failed(error)] * len(together)


def _tell(done: asyncio.Future[Any], outcome: Any) -> None:
    if done.done():  # its caller was cancelled
        return
    if isinstance(outcome, Failed):
        done.set_exception(outcome.error)
    else:
        done.set_result(outcome)
