"""Limits how many large bodies are in memory at once. A body without a slot waits before it is read, so that TCP holds
its client back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from aiohttp import web

from api.auth.authentication import API_KEY
from api.http.timeouts import DEADLINES
from api.routing.validation import SMALL_BODY
from calls.fair_semaphore import FairSemaphore
from config.errors import Unavailable

MAX_CONCURRENT: Final = 8
"""Slots; one organization gets at most half of them."""
MAX_WAITING: Final = 32
"""Waiting uploads of an organization."""
MAX_WAIT_S: Final = 60.0
RETRY_AFTER_S: Final = 10


class UploadSlots:
    """The slots for large bodies."""

    def __init__(self) -> None:
        self._places = FairSemaphore(MAX_CONCURRENT)

    async def take(self, request: web.Request, max_body: int) -> Callable[[], None]:
        """Wait for a slot for the body of this request, of at most `max_body` bytes; returns the function that gives it
        back. A small body needs none, nor does one that is rejected for its length. The request's time does not run
        meanwhile. Raises `Unavailable` when too many of the organization's wait, or when this one has waited for too
        long."""
        length = request.content_length
        if length is not None and not SMALL_BODY < length <= max_body:
            return _nothing
        caller = request.get(API_KEY)
        owner = "" if caller is None else caller.organization_id
        if self._places.can_acquire(owner):
            await self._places.acquire(owner)
        else:
            await self._wait(request, owner)
        return partial(self._places.release, owner)

    async def _wait(self, request: web.Request, owner: str) -> None:
        if self._places.waiting(owner) >= MAX_WAITING:
            raise Unavailable("Too many uploads at once", RETRY_AFTER_S)
        try:
            with request.app[DEADLINES].paused():
                async with asyncio.timeout(MAX_WAIT_S):
                    await self._places.acquire(owner)
        except TimeoutError as error:
            raise Unavailable("Too many uploads at once", RETRY_AFTER_S) from error


def _nothing() -> None:
    return None
