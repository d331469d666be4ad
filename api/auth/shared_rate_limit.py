"""Rate limits of several nodes together: each node draws permits of a window from the database in advance, an eighth of
what is left at a time, so that few requests wait for that and the nodes never exceed a limit. A single server counts in
memory."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final

from api.auth.rate_limit import WINDOW_S, RateLimiter, RateLimitState
from api.periodic_task import PeriodicTask
from config.secrets import Secrets
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.database.postgresql.locks import IndependentLock
from storage.nodes import shared_limits

PARTS: Final = 8
"""Into so many parts a node divides what is left of a window, and draws one."""
MAX_WINDOWS: Final = 100_000
"""Windows that a node knows; the oldest are forgotten, with the permits that it has drawn of them."""
PURGE_EVERY_S: Final = 300.0


@dataclass
class _Window:
    """What this node knows of a window: its own permits, what was left for all nodes, and its end, monotonic."""

    limit: int
    permits: int
    left: int
    until_s: float

    def is_known(self, limit: int, now_s: float) -> bool:
        """True if it decides on a request: with a permit, or because nothing is left."""
        return self.limit == limit and now_s < self.until_s and (self.permits > 0 or self.left == 0)


class SharedRateLimiter:
    """The windows of all nodes, by client; `is_shared` False: of this process alone. Event loop only."""

    def __init__(self, database: Database, secrets: Secrets, *, is_shared: bool) -> None:
        self._database = database
        self._secrets = secrets
        self._is_shared = is_shared
        self._local = RateLimiter()
        self._windows: dict[str, _Window] = {}
        self._drawing: dict[str, asyncio.Lock] = {}

    def charge_here(self, client: str, limit: int, now_s: float) -> RateLimitState:
        """Count a request in this process alone, while the database cannot be read."""
        return self._local.charge(client, limit, now_s)

    async def charge(self, client: str, limit: int, now_s: float, *, in_advance: bool = True) -> RateLimitState:
        """Count a request of `client` against `limit` requests a window; returns the state of its window. `now_s`:
        seconds since 1970. Without `in_advance` each request asks the database. While that cannot be reached, this node
        counts alone."""
        if not self._is_shared:
            return self._local.charge(client, limit, now_s)
        try:
            window = await self._window(client, limit, PARTS if in_advance else limit)
        except StorageUnavailable:
            return self._local.charge(client, limit, now_s)
        allowed = window.permits > 0
        window.permits -= allowed
        reset_s = now_s + window.until_s - time.monotonic()
        return RateLimitState(limit, window.left + window.permits, reset_s, allowed)

    async def _window(self, client: str, limit: int, parts: int) -> _Window:
        """Returns a window that decides on a request. Requests of one client wait for the same draw."""
        window = self._windows.get(client)
        if window is not None and window.is_known(limit, time.monotonic()):
            return window
        async with self._drawing.setdefault(client, asyncio.Lock()):
            window = self._windows.get(client)
            if window is None or not window.is_known(limit, time.monotonic()):
                self._windows.pop(client, None)
                window = self._windows[client] = await self._draw(client, limit, parts)
            return window

    async def _draw(self, client: str, limit: int, parts: int) -> _Window:
        if len(self._windows) >= MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        name = self._secrets.sign(f"rate {client}")  # a name that nobody has may be a password
        draw = partial(shared_limits.draw, name=name, limit=limit, window_s=WINDOW_S, parts=parts)
        began_s = time.monotonic()
        drawn = await self._database.write(draw, lock=IndependentLock(f"rate {name}"))
        return _Window(limit, drawn.permits, drawn.left, began_s + drawn.ends_in_s)

    def purge_periodically(self) -> AbstractAsyncContextManager[None]:
        """Forget ended windows of several nodes while the block runs, here and in the database."""
        if not self._is_shared:
            return nullcontext()
        return PeriodicTask("rate_limits.not_purged", PURGE_EVERY_S, self._purge).running("rate limit purge")

    async def _purge(self) -> None:
        now_s = time.monotonic()
        self._windows = {client: each for client, each in self._windows.items() if now_s < each.until_s}
        self._drawing = {client: each for client, each in self._drawing.items() if each.locked()}
        while await self._database.write(shared_limits.delete_old, lock=IndependentLock("rate purge")):
            pass
