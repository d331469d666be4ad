"""Reads on several connections. Organizations take turns at those that all share, and none has all of them at once;
what calls wait for has a connection of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar

import sqlalchemy as sa

from storage.database.fair_queue import FairQueue, Owner

T = TypeVar("T")
Lane = Literal["shared", "calls"]
"""calls: what a caller waits for. It goes before everything else, on a connection that nothing else has."""


class ReadConnection(Protocol):
    """A connection with its thread."""

    def begin(self, work: Callable[[sa.Connection], Any], context: Context) -> asyncio.Future[Any]:
        """Run a transaction; the future has what `work` gives once it has ended, whoever waits for it."""


@dataclass(frozen=True)
class _PendingRead:
    """A transaction that waits. `owner` None: the server's own."""

    work: Callable[[sa.Connection], Any]
    owner: Owner
    done: asyncio.Future[Any]
    context: Context = field(default_factory=copy_context)


class ReadPool:
    """Hands transactions to connections, one at a time to each. One whose caller is gone before it has begun is left
    out."""

    def __init__(
        self, shared: Sequence[ReadConnection], calls: ReadConnection, closed: Callable[[], Exception]
    ) -> None:
        """`closed` makes what is raised to those that still wait when this is closed."""
        self._calls: Final = calls
        self._calls_idle = True
        self._idle: list[ReadConnection] = list(shared)
        self._running = 0
        self._waiting = FairQueue[_PendingRead](most_at_once=max(1, len(shared) - 1))
        self._callers: deque[_PendingRead] = deque()
        self._closed = closed
        self._all_ended: asyncio.Future[None] | None = None

    async def read(self, work: Callable[[sa.Connection], T], owner: Owner, lane: Lane) -> T:
        """What `work` gives; raises what it raises."""
        mine = _PendingRead(work, owner, asyncio.get_running_loop().create_future())
        if lane == "calls":
            self._callers.append(mine)
        else:
            self._waiting.put(owner, mine)
        self._begin_more()
        result: T = await mine.done
        return result

    async def close(self) -> None:
        """Wait until everything that was handed in has ended. When this is cancelled, what has not begun never will."""
        try:
            if self._running:
                self._all_ended = asyncio.get_running_loop().create_future()
                await self._all_ended
        finally:
            self._idle, self._calls_idle = [], False
            for each in (*self._callers, *self._waiting.clear()):
                if not each.done.done():
                    each.done.set_exception(self._closed())

    def _begin_more(self) -> None:
        """As many as can be."""
        while self._callers and (self._calls_idle or self._idle):
            read = self._callers.popleft()
            if read.done.done():
                continue
            if self._calls_idle:
                self._calls_idle = False
                self._begin(self._calls, read, _nothing)
            else:
                self._begin(self._idle.pop(), read, _nothing)
        while self._idle and (taken := self._waiting.take()) is not None:
            owner, read = taken
            if read.done.done():
                self._waiting.done(owner)
            else:
                self._begin(self._idle.pop(), read, partial(self._waiting.done, owner))

    def _begin(self, reader: ReadConnection, read: _PendingRead, ended: Callable[[], None]) -> None:
        self._running += 1
        running = reader.begin(read.work, read.context)
        running.add_done_callback(partial(self._ended, reader, read, ended))

    def _ended(
        self, reader: ReadConnection, read: _PendingRead, ended: Callable[[], None], outcome: asyncio.Future[Any]
    ) -> None:
        self._running -= 1
        if reader is self._calls:
            self._calls_idle = True
        else:
            self._idle.append(reader)
        ended()
        _resolve(read.done, outcome)
        self._begin_more()
        if not self._running and self._all_ended is not None and not self._all_ended.done():
            self._all_ended.set_result(None)


def _nothing() -> None:
    return None


def _resolve(done: asyncio.Future[Any], outcome: asyncio.Future[Any]) -> None:
    error = outcome.exception()
    if done.done():  # its caller was cancelled
        return
    if error is None:
        done.set_result(outcome.result())
    else:
        done.set_exception(error)
