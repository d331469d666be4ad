"""How many large bodies are in memory at once. One is read, decoded and stored in its turn; the others wait before they
are read, where the connection holds their clients back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from api.deadlines import DEADLINES
from api.validation import SMALL_BODY
from config.errors import Unavailable

AT_ONCE: Final = 4
MOST_WAITING: Final = 32
LONGEST_WAIT_S: Final = 60.0
RETRY_AFTER_S: Final = 10


class Uploads:
    """The places for large bodies."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def place(self, request: web.Request, max_body: int) -> Callable[[], None]:
        """A place for the body of this request, of at most `max_body` bytes, and what gives it back. A small body needs
        none, nor does one that is refused for its length. The wait is no work: no deadline runs. `Unavailable` when too
        many wait, or this one for too long."""
        length = request.content_length
        if length is not None and not SMALL_BODY < length <= max_body:
            return _nothing
        if self._places.locked():
            await self._turn(request)
        else:
            await self._places.acquire()
        return self._places.release

    async def _turn(self, request: web.Request) -> None:
        if self._waiting >= MOST_WAITING:
            raise Unavailable("Too many uploads at once", RETRY_AFTER_S)
        self._waiting += 1
        try:
            with request.app[DEADLINES].paused():
                async with asyncio.timeout(LONGEST_WAIT_S):
                    await self._places.acquire()
        except TimeoutError as error:
            raise Unavailable("Too many uploads at once", RETRY_AFTER_S) from error
        finally:
            self._waiting -= 1


def _nothing() -> None:
    return None
