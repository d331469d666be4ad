"""Concurrent requests of one call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from calls.tools.http_tool import MAX_CONCURRENT_REQUESTS
from tests.calls.http_server import serving
from tests.calls.tools.tool_server import HttpTools, http_tools


@dataclass
class Gate:
    """A server that responds once it is open."""

    came: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        self.came.release()
        await self.open.wait()
        return web.Response(text="ok")

    async def until_came(self, times: int) -> None:
        async with asyncio.timeout(5):
            for _ in range(times):
                await self.came.acquire()


def begin(calling: HttpTools, origin: str, times: int) -> list[asyncio.Task[bool]]:
    async def one() -> bool:
        return (await calling.tool(origin).run({})).ok

    return [asyncio.create_task(one()) for _ in range(times)]


async def test_two_requests_of_a_call_are_sent_at_once_and_a_third_waits() -> None:
    gate = Gate()
    async with serving(gate.handle) as origin, http_tools() as calling:
        asked = begin(calling, origin, MAX_CONCURRENT_REQUESTS + 1)
        await gate.until_came(MAX_CONCURRENT_REQUESTS)
        assert calling.context.concurrent_requests.locked()
        assert gate.came.locked(), "a third one came"
        gate.open.set()
        assert await asyncio.gather(*asked) == [True] * (MAX_CONCURRENT_REQUESTS + 1)


async def test_a_cancelled_request_releases_its_slot_to_the_next() -> None:
    gate = Gate()
    async with serving(gate.handle) as origin, http_tools() as calling:
        first, *others = begin(calling, origin, MAX_CONCURRENT_REQUESTS + 1)
        await gate.until_came(MAX_CONCURRENT_REQUESTS)
        first.cancel()
        await gate.until_came(1)
        gate.open.set()
        assert await asyncio.gather(*others) == [True] * MAX_CONCURRENT_REQUESTS
        with pytest.raises(asyncio.CancelledError):
            await first
