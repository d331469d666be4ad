"""Streaming of large response bodies as fast as the client reads, with a limit of bytes in memory for each
organization: its further responses wait, those of other organizations do not. Small responses have an allowance beyond
the limit, so that they do not wait for large ones of their organization."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from weakref import finalize

from aiohttp import hdrs, web

from config.errors import Unavailable

CHUNK: Final = 128 * 1024
"""Bytes written to the connection at once; smaller bodies are sent whole and not counted."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of an organization's responses; a single response is always allowed, of any size."""
MAX_SMALL: Final = 1024 * 1024
"""Bytes of a small response."""
SMALL_ALLOWANCE: Final = 4 * 1024 * 1024
"""Bytes beyond `MAX_BYTES` that small responses may use."""
MAX_WAITING: Final = 64
"""Requests of an organization that wait for memory, separately for small responses and others; further ones get 503
with Retry-After."""
RETRY_AFTER_S: Final = 5


class MemoryReservation:
    """The bytes reserved for one response until `release`, which may be called more than once."""

    def __init__(self, size: int, changed: Callable[[int], None]) -> None:
        self._size = size
        self._changed = changed

    def resize(self, size: int) -> None:
        """Set the size to that of the serialized response."""
        before, self._size = self._size, size
        if before != size:
            self._changed(size - before)

    def release(self) -> None:
        """Give the bytes back: the response has been sent or dropped."""
        self.resize(0)


class ResponseMemory:
    """Reserved bytes by organization; responses without an organization (None) never wait. Small responses, of up to
    `max_small` bytes, may use `small_allowance` bytes more than others."""

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        max_waiting: int = MAX_WAITING,
        max_small: int = MAX_SMALL,
        small_allowance: int = SMALL_ALLOWANCE,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_waiting = max_waiting
        self._max_small = max_small
        self._small_allowance = small_allowance
        self._reserved = Counter[str | None]()
        self._waiting: dict[tuple[str | None, bool], deque[tuple[int, asyncio.Future[None]]]] = {}

    def reserved(self, owner: str | None) -> int:
        """Returns the bytes that are reserved now."""
        return self._reserved[owner]

    def reserve_now(self, owner: str | None, size: int) -> MemoryReservation:
        """Reserve memory without waiting, for a response that exists already."""
        self._reserved[owner] += size
        return MemoryReservation(size, lambda change: self._change(owner, change))

    async def reserve(self, owner: str | None, size: int) -> MemoryReservation:
        """Reserve memory for a future response of at most about `size` bytes, as soon as there is enough; first come,
        first served, among the small ones and among the others. Raises `Unavailable` if too many wait."""
        queue = (owner, size <= self._max_small)
        if owner is not None and (queue in self._waiting or not self._fits(owner, size)):
            waiting = self._waiting.setdefault(queue, deque())
            if len(waiting) >= self._max_waiting:
                raise Unavailable("Too many large responses of this organization wait to be read", RETRY_AFTER_S)
            admitted = asyncio.get_running_loop().create_future()
            waiting.append((size, admitted))
            try:
                await admitted
            except asyncio.CancelledError:
                self._stop_waiting(owner, size, admitted)
                raise
        else:
            self._reserved[owner] += size
        return MemoryReservation(size, lambda change: self._change(owner, change))

    def _stop_waiting(self, owner: str, size: int, admitted: asyncio.Future[None]) -> None:
        """The waiting request was cancelled, perhaps at the moment in which it was admitted."""
        if admitted.cancelled():
            with suppress(ValueError):  # removed already
                self._waiting.get((owner, size <= self._max_small), deque()).remove((size, admitted))
            self._admit_waiting(owner)
        else:
            self._change(owner, -size)

    def _change(self, owner: str | None, change: int) -> None:
        self._reserved[owner] += change
        if not self._reserved[owner]:
            del self._reserved[owner]
        if change < 0:
            self._admit_waiting(owner)

    def _admit_waiting(self, owner: str | None) -> None:
        for queue in ((owner, False), (owner, True)):
            waiting = self._waiting.get(queue)
            while waiting and (waiting[0][1].done() or self._fits(owner, waiting[0][0])):
                size, admitted = waiting.popleft()
                if not admitted.done():
                    self._reserved[owner] += size
                    admitted.set_result(None)
            if waiting is not None and not waiting:
                del self._waiting[queue]

    def _fits(self, owner: str | None, size: int) -> bool:
        reserved = self._reserved[owner]
        allowance = self._small_allowance if size <= self._max_small else 0
        return not reserved or reserved + size <= self._max_bytes + allowance


class StreamedJsonResponse(web.StreamResponse):
    """A JSON body in parts that are all in memory. Each part is written when the connection has taken those before it;
    `reservation` is released after the last part, or when the client disconnects."""

    def __init__(self, status: int, parts: Sequence[bytes], reservation: MemoryReservation) -> None:
        super().__init__(status=status, headers={hdrs.CONTENT_TYPE: "application/json; charset=utf-8"})
        self.content_length = sum(map(len, parts))
        self._parts = deque(parts)
        self._reservation = reservation
        finalizer = finalize(self, _release_on_loop, asyncio.get_running_loop(), reservation)  # if it is never sent
        finalizer.atexit = False

    async def write_eof(self, data: bytes = b"") -> None:
        """Write the body; aiohttp calls this after the headers."""
        try:
            if self._req is not None and self._req.method != hdrs.METH_HEAD:
                await self._write_parts()
            await super().write_eof(data)
        finally:
            self._parts.clear()
            self._reservation.release()

    async def _write_parts(self) -> None:
        """Writes small parts joined, and large ones in chunks without a copy. Other tasks run between the chunks, also
        if the client reads fast."""
        small: list[bytes] = []
        size = 0
        while self._parts:
            part = self._parts.popleft()
            if len(part) < CHUNK:
                small.append(part)
                size += len(part)
            if small and (size >= CHUNK or len(part) >= CHUNK or not self._parts):
                await self.write(b"".join(small))
                await asyncio.sleep(0)
                small, size = [], 0
            if len(part) >= CHUNK:
                view = memoryview(part)
                for at in range(0, len(part), CHUNK):
                    await self.write(view[at : at + CHUNK])
                    await asyncio.sleep(0)


def _release_on_loop(loop: asyncio.AbstractEventLoop, reservation: MemoryReservation) -> None:
    """Releases on the event loop, because the garbage collector runs on any thread, at any moment."""
    with suppress(RuntimeError):  # the loop is closed: no request waits
        loop.call_soon_threadsafe(reservation.release)
