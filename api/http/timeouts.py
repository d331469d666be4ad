"""Request timeouts: one for handling a request, one for receiving its body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from config.errors import BodyTimeout, Unavailable

RETRY_AFTER_S: Final = 5
Task = asyncio.Task[Any]


class RequestDeadlines:
    """The deadlines of the requests that run now. The timeouts, in seconds, are the same for all requests, so the
    oldest request is due first and one timer serves all; a timer for each request would cost ten times as much."""

    def __init__(self, work_s: float, body_s: float) -> None:
        self._work_s = work_s
        self._body_s = body_s
        self._due: dict[Task, float] = {}
        self._late: set[Task] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, task: Task) -> None:
        """Start the timeout of a task: the task is cancelled unless it ends in time."""
        loop = task.get_loop()
        due = self._due[task] = loop.time() + self._work_s
        if self._timer is None:
            self._timer = loop.call_at(due, self._cancel_late, loop)

    def end(self, task: Task) -> bool:
        """Stop the timeout of a task; returns True if the task was cancelled because it was late."""
        if task in self._late:
            self._late.discard(task)
            return True
        self._due.pop(task, None)
        return False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the timeout of the current task while the block runs; after the block it starts again from zero."""
        task = _current_task()
        self.end(task)
        try:
            yield
        finally:
            self.begin(task)

    @asynccontextmanager
    async def body_timeout(self, factor: float) -> AsyncIterator[None]:
        """Limit the time of the block, which receives a body, to `factor` times the timeout of bodies; raises
        `BodyTimeout`. The timeout of the task is paused."""
        with self.paused():
            try:
                async with asyncio.timeout(self._body_s * factor):
                    yield
            except TimeoutError as error:
                raise BodyTimeout("The request body came too slowly") from error

    def _cancel_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for task, due in list(self._due.items()):
            if due > now:
                self._timer = loop.call_at(due, self._cancel_late, loop)
                return
            del self._due[task]
            self._late.add(task)
            task.cancel()


DEADLINES: Final = web.AppKey("deadlines", RequestDeadlines)


def request_timeout(deadlines: RequestDeadlines) -> Middleware:
    """Returns the middleware: raises `Unavailable` for a request that is late. A transaction that runs already is
    completed."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        task = _current_task()
        deadlines.begin(task)
        try:
            return await handler(request)
        except asyncio.CancelledError as error:
            if not deadlines.end(task) or task.uncancel():
                raise
            raise Unavailable("The request took too long", RETRY_AFTER_S) from error
        finally:
            deadlines.end(task)

    return middleware


def _current_task() -> Task:
    """The task of the request; `web.Request.task` is the task of its connection."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a request must run in a task")
    return task
