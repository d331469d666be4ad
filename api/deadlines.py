"""How long a request may take: the work on it, and its body on the way here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from config.errors import TooSlow, Unavailable

RETRY_AFTER_S: Final = 5


@dataclass(frozen=True)
class Deadlines:
    """Seconds for the work on a request and for its body. The time that a body or a file takes is no work."""

    work_s: float
    body_s: float


DEADLINES: Final = web.AppKey("deadlines", Deadlines)
CLOCK: Final = web.RequestKey("clock", asyncio.Timeout)


def bounded(deadlines: Deadlines) -> Middleware:
    """The middleware: `Unavailable` in place of work that hangs. A transaction that runs already goes on to its end."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with asyncio.timeout(deadlines.work_s) as clock:
                request[CLOCK] = clock
                return await handler(request)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise Unavailable("The request took too long", RETRY_AFTER_S) from error

    return middleware


@asynccontextmanager
async def arriving(request: web.Request, factor: float) -> AsyncIterator[None]:
    """Around the wait for a body: `TooSlow` when it takes `factor` times as long as a body may. Meanwhile the time of
    the work stands still."""
    clock, loop = request[CLOCK], asyncio.get_running_loop()
    started, due = loop.time(), clock.when()
    clock.reschedule(None)
    try:
        async with asyncio.timeout(request.app[DEADLINES].body_s * factor):
            yield
    except TimeoutError as error:
        raise TooSlow("The request body came too slowly") from error
    finally:
        clock.reschedule(None if due is None else due + loop.time() - started)
