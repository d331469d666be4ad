"""Pool of read connections. Organizations take turns at the shared ones, and none gets all of them at once; reads of
calls have an additional connection."""

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
ReadPriority = Literal["shared", "calls"]
"""`calls`: reads that a caller waits for go before all others, and have an additional connection."""


class ReadConnection(Protocol):
    """A connection with its thread."""

    def begin(self, work: Callable[[sa.Connection], Any], context: Context) -> asyncio.Future[Any]:
        """Run a transaction; the future gets the result of `work`, even when the caller is cancelled."""


@dataclass(frozen=True)
class _PendingRead:
    """A waiting transaction. `owner` None: the server's own."""

    work: Callable[[sa.Connection], Any]
    owner: Owner
    done: asyncio.Future[Any]
    context: Context = field(default_factory=copy_context)


class ReadPool:
    """Runs read transactions, one at a time on each connection. A transaction whose caller is cancelled before it
    begins is skipped."""

    def __init__(
        self, shared: Sequence[ReadConnection], calls: ReadConnection, closed: Callable[[], Exception]
    ) -> None:
        """`closed` returns the error of transactions that still wait when the pool is closed."""
        self._calls: Final = calls
        self._calls_idle = True
        self._idle: list[ReadConnection] = list(shared)
        self._running = 0
        self._waiting = FairQueue[_PendingRead](most_at_once=max(1, len(shared) - 1))
        self._callers: deque[_PendingRead] = deque()
        self._closed = closed
        self._all_ended: asyncio.Future[None] | None = None

    async def read(self, work: Callable[[sa.Connection], T], owner: Owner, priority: ReadPriority) -> T:
        """Returns the result of `work`; raises what it raises."""
        pending = _PendingRead(work, owner, asyncio.get_running_loop().create_future())
        if priority == "calls":
            self._callers.append(pending)
        else:
            self._waiting.put(owner, pending)
        self._begin_more()
        result: T = await pending.done
        return result

    async def close(self) -> None:
        """Wait until all transactions have ended. When this is cancelled, waiting ones fail with the error of
        `closed`."""
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
        """Begin as many waiting transactions as there are idle connections."""
        while self._callers and (self._calls_idle or self._idle):
            read = self._callers.popleft()
            if read.done.done():
                continue
            if self._calls_idle:
                self._calls_idle = False
                self._begin(self._calls, read, _do_nothing)
            else:
                self._begin(self._idle.pop(), read, _do_nothing)
        while self._idle and (taken := self._waiting.take()) is not None:
            owner, read = taken
            if read.done.done():
                self._waiting.mark_done(owner)
            else:
                self._begin(self._idle.pop(), read, partial(self._waiting.mark_done, owner))

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


def _do_nothing() -> None:
    return None


def _resolve(done: asyncio.Future[Any], outcome: asyncio.Future[Any]) -> None:
    error = outcome.exception()
    if done.done():  # its caller was cancelled
        return
    if error is None:
        done.set_result(outcome.result())
    else:
        done.set_exception(error)
