"""Upload slots: limit the number of large bodies in memory. A request without a slot waits before its body is read, so
that TCP stops its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from aiohttp import web

from api.auth.principal import PRINCIPAL
from api.http.timeouts import DEADLINES
from api.routing.validation import SMALL_BODY
from calls.fair_semaphore import FairSemaphore
from config.errors import Unavailable

MAX_CONCURRENT: Final = 8
"""Slots; an organization gets at most half of them."""
MAX_WAITING: Final = 32
"""Uploads of an organization that wait for a slot."""
MAX_WAIT_S: Final = 60.0
RETRY_AFTER_S: Final = 10


class UploadSlots:
    """The slots of the server, shared fairly between organizations."""

    def __init__(self) -> None:
        self._semaphore = FairSemaphore(MAX_CONCURRENT)

    async def acquire(self, request: web.Request, max_body: int) -> Callable[[], None]:
        """Wait for a slot for the body of this request, of at most `max_body` bytes; returns the function that releases
        it. A small body needs no slot, nor does one that will be rejected for its length. The request's timeout is
        paused meanwhile. Raises `Unavailable` if too many uploads of the organization wait, or if this one has waited
        for `MAX_WAIT_S`."""
        length = request.content_length
        if length is not None and not SMALL_BODY < length <= max_body:
            return _do_nothing
        principal = request.get(PRINCIPAL)
        owner = "" if principal is None else principal.organization_id
        if self._semaphore.can_acquire(owner):
            await self._semaphore.acquire(owner)
        else:
            await self._wait(request, owner)
        return partial(self._semaphore.release, owner)

    async def _wait(self, request: web.Request, owner: str) -> None:
        if self._semaphore.waiter_count(owner) >= MAX_WAITING:
            raise Unavailable("Too many uploads at once", RETRY_AFTER_S)
        try:
            with request.app[DEADLINES].paused():
                async with asyncio.timeout(MAX_WAIT_S):
                    await self._semaphore.acquire(owner)
        except TimeoutError as error:
            raise Unavailable("Too many uploads at once", RETRY_AFTER_S) from error


def _do_nothing() -> None:
    return None
