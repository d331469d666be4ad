"""Response bodies in memory: large ones are streamed as fast as the client reads, and each organization has a limit of
bytes. Further responses of that organization wait, and those of others do not. Small responses have a reserve, so that
they do not wait for large ones of their organization."""

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
"""Bytes of an organization; a single response is always allowed, however large."""
SMALL: Final = 1024 * 1024
"""Bytes of a response that may use the reserve."""
RESERVE: Final = 4 * 1024 * 1024
"""Bytes beyond `MAX_BYTES` that small responses may use."""
MAX_WAITING: Final = 64
"""Requests of an organization that wait for memory, small ones and others each; further ones get 503 with
Retry-After."""
RETRY_AFTER_S: Final = 5


class MemoryReservation:
    """The bytes reserved for one response until `release`, which may be called more than once."""

    def __init__(self, size: int, changed: Callable[[int], None]) -> None:
        self._size = size
        self._changed = changed

    def resize(self, size: int) -> None:
        """The response is serialized, and has this size."""
        before, self._size = self._size, size
        if before != size:
            self._changed(size - before)

    def release(self) -> None:
        """The response has been sent or dropped."""
        self.resize(0)


class ResponseMemory:
    """Bytes by organization; responses of None, without an organization, never wait. Small responses, of up to `small`
    bytes, may use `reserve` bytes more than others."""

    def __init__(
        self, most_bytes: int = MAX_BYTES, most_waiting: int = MAX_WAITING, small: int = SMALL, reserve: int = RESERVE
    ) -> None:
        self._most_bytes = most_bytes
        self._most_waiting = most_waiting
        self._small = small
        self._reserve = reserve
        self._taken = Counter[str | None]()
        self._waiting: dict[tuple[str | None, bool], deque[tuple[int, asyncio.Future[None]]]] = {}

    def reserved(self, owner: str | None) -> int:
        """Bytes reserved now."""
        return self._taken[owner]

    def reserve_now(self, owner: str | None, size: int) -> MemoryReservation:
        """Reserve memory for a response that exists already."""
        self._taken[owner] += size
        return MemoryReservation(size, lambda more: self._change(owner, more))

    async def reserve(self, owner: str | None, size: int) -> MemoryReservation:
        """Reserve memory for a response that is yet to be made, of at most about `size` bytes, as soon as there is
        enough; first come, first served, among the small ones and among the others. Raises `Unavailable` when too many
        wait."""
        queue = (owner, size <= self._small)
        if owner is not None and (queue in self._waiting or not self._fits(owner, size)):
            waiting = self._waiting.setdefault(queue, deque())
            if len(waiting) >= self._most_waiting:
                raise Unavailable("Too many large answers of this organization are still being taken", RETRY_AFTER_S)
            turn = asyncio.get_running_loop().create_future()
            waiting.append((size, turn))
            try:
                await turn
            except asyncio.CancelledError:
                self._give_up(owner, size, turn)
                raise
        else:
            self._taken[owner] += size
        return MemoryReservation(size, lambda more: self._change(owner, more))

    def _give_up(self, owner: str, size: int, turn: asyncio.Future[None]) -> None:
        """The waiting request was cancelled, perhaps at the moment in which it was admitted."""
        if turn.cancelled():
            with suppress(ValueError):  # passed over already
                self._waiting.get((owner, size <= self._small), deque()).remove((size, turn))
            self._admit_waiting(owner)
        else:
            self._change(owner, -size)

    def _change(self, owner: str | None, more: int) -> None:
        self._taken[owner] += more
        if not self._taken[owner]:
            del self._taken[owner]
        if more < 0:
            self._admit_waiting(owner)

    def _admit_waiting(self, owner: str | None) -> None:
        for queue in ((owner, False), (owner, True)):
            waiting = self._waiting.get(queue)
            while waiting and (waiting[0][1].done() or self._fits(owner, waiting[0][0])):
                size, turn = waiting.popleft()
                if not turn.done():
                    self._taken[owner] += size
                    turn.set_result(None)
            if waiting is not None and not waiting:
                del self._waiting[queue]

    def _fits(self, owner: str | None, size: int) -> bool:
        taken = self._taken[owner]
        return not taken or taken + size <= self._most_bytes + (self._reserve if size <= self._small else 0)


class StreamedJsonResponse(web.StreamResponse):
    """A JSON body in parts that are all in memory. Each part is written when the connection has taken those before it;
    `room` is released after the last part, or when the client disconnects."""

    def __init__(self, status: int, parts: Sequence[bytes], room: MemoryReservation) -> None:
        super().__init__(status=status, headers={hdrs.CONTENT_TYPE: "application/json; charset=utf-8"})
        self.content_length = sum(map(len, parts))
        self._parts = deque(parts)
        self._room = room
        never_sent = finalize(self, _release_on_loop, asyncio.get_running_loop(), room)
        never_sent.atexit = False

    async def write_eof(self, data: bytes = b"") -> None:
        """Write the body; aiohttp calls this after the headers."""
        try:
            if self._req is not None and self._req.method != hdrs.METH_HEAD:
                await self._write_parts()
            await super().write_eof(data)
        finally:
            self._parts.clear()
            self._room.release()

    async def _write_parts(self) -> None:
        """Small parts are joined, large ones are written in chunks without a copy. A fast reader holds up other tasks
        for one chunk at a time, not for the whole body."""
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


def _release_on_loop(loop: asyncio.AbstractEventLoop, room: MemoryReservation) -> None:
    """The garbage collector runs on any thread, at any moment."""
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(room.release)
