"""The requests that this node has under way at one remote model: limited, and shared fairly by its callers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import structlog

from models.errors import RemoteModelError
from models.remote.adaptive_limit import GROWTH_S, AdaptiveLimit
from models.runtime import request_context

DEFAULT_LIMIT: Final = 32
_RESERVED_SHARE: Final = 4
"""Requests for which no caller waits leave one in so many free."""

log = structlog.get_logger()


class Priority(IntEnum):
    """LIVE: a caller waits. PREFILL: a caller will wait. BACKGROUND: nobody waits."""

    LIVE = 0
    PREFILL = 1
    BACKGROUND = 2


@dataclass(eq=False)
class _Request:
    organization_id: str
    call_id: str
    priority: Priority
    admitted: asyncio.Future[None]


class RequestQueue:
    """Live requests go first. Of equal ones the next is of the organization with the fewest requests under way, then of
    the call with the fewest, then the oldest one: who is alone may use the whole limit. `clock` returns seconds. For
    the event loop only."""

    def __init__(self, model: str, limit: int, clock: Callable[[], float]) -> None:
        self.limit: Final = AdaptiveLimit(limit)
        self._model = model
        self._clock = clock
        self._waiting: list[_Request] = []
        self._organizations = Counter[str]()
        self._calls = Counter[str]()
        self.in_flight = 0
        self.waited_s = 0.0
        """Seconds that admitted requests have waited, in all."""
        self._growth: asyncio.TimerHandle | None = None

    @property
    def current_limit(self) -> int:
        """The limit now."""
        return self.limit.at(self._clock())

    @asynccontextmanager
    async def slot(self, priority: Priority, wait_s: float) -> AsyncIterator[None]:
        """Wait for at most `wait_s` until the request may be sent, and count it until the end of the block. Raises
        `RemoteModelError` if it may not."""
        context = request_context.current()
        admitted = asyncio.get_running_loop().create_future()
        request = _Request(context.organization_id, context.call_id, priority, admitted)
        self._waiting.append(request)
        self._admit()
        if not admitted.done():
            await self._wait(request, wait_s)
        try:
            yield
        finally:
            self._release(request)

    def on_refused(self, retry_after_s: float | None) -> None:
        """The server has refused a request, because it has too many."""
        now_s = self._clock()
        if self.limit.on_refused(now_s, self.in_flight, retry_after_s):
            log.warning(
                "remote_model.overloaded", model=self._model, requests=self.limit.at(now_s),
                seconds=round(self.limit.pause_s(now_s), 1),
            )  # fmt: skip

    async def _wait(self, request: _Request, wait_s: float) -> None:
        started_s = self._clock()
        try:
            if wait_s <= 0 or (not self.limit.at(started_s) and self.limit.pause_s(started_s) > wait_s):
                raise TimeoutError
            async with asyncio.timeout(wait_s):
                await request.admitted
        except BaseException as error:
            if request.admitted.done() and not request.admitted.cancelled():
                self._release(request)
            elif request in self._waiting:
                self._waiting.remove(request)
            if isinstance(error, TimeoutError):
                raise self._too_many() from None
            raise
        self.waited_s += self._clock() - started_s

    def _too_many(self) -> RemoteModelError:
        now_s = self._clock()
        if not self.limit.at(now_s):
            pause_s = self.limit.pause_s(now_s)
            message = f"{self._model} has too many requests and is not asked for {pause_s:.0f} s"
        else:
            message = f"{self._model} is still busy with {self.in_flight} requests of this server"
        return RemoteModelError("busy", message, counts=False)

    def _release(self, request: _Request) -> None:
        self.in_flight -= 1
        for held, key in ((self._organizations, request.organization_id), (self._calls, request.call_id)):
            held[key] -= 1
            if not held[key]:
                del held[key]
        self._admit()

    def _admit(self) -> None:
        """Admit the next requests."""
        while self._waiting:
            request = min(self._waiting, key=self._rank)
            if not self._has_room(request.priority):
                break
            self._waiting.remove(request)
            if not request.admitted.done():  # else it was cancelled
                request.admitted.set_result(None)
                self.in_flight += 1
                self._organizations[request.organization_id] += 1
                self._calls[request.call_id] += 1
        if self._waiting and self._growth is None and self.limit.at(self._clock()) < self.limit.configured:
            self._growth = asyncio.get_running_loop().call_later(GROWTH_S / 4, self._on_growth)

    def _on_growth(self) -> None:
        self._growth = None
        self._admit()

    def _rank(self, request: _Request) -> tuple[int, int, int]:
        """The lowest is next; of equal ones the first."""
        return request.priority, self._organizations[request.organization_id], self._calls[request.call_id]

    def _has_room(self, priority: Priority) -> bool:
        limit = self.limit.at(self._clock())
        reserved = 0 if priority is Priority.LIVE else limit // _RESERVED_SHARE
        return self.in_flight < limit - reserved
