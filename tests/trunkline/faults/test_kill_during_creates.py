"""Durability of API responses: `kill -9` during many creates loses none that was confirmed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.trunkline.server_process import Server

pytestmark = pytest.mark.asyncio(loop_scope="package")
CREATES = 200
AT_ONCE = 20


class Creator:
    """Creates agents, each with its own idempotency key. `answers`: the response bodies by the agents' numbers."""

    def __init__(self, server: Server, key: str) -> None:
        self._url = f"{server.origin}/v1/agents"
        self._headers = {"Authorization": f"Bearer {key}"}
        self.answers: dict[int, bytes] = {}
        self.half_done = asyncio.Event()

    async def create(self, session: aiohttp.ClientSession, number: int) -> tuple[bytes, bool]:
        """Create an agent; returns the response body, and True if the response was replayed."""
        headers = {**self._headers, "Idempotency-Key": f"create-{number}"}
        async with session.post(self._url, json={"name": f"agent {number}"}, headers=headers) as response:
            body = await response.read()
            assert response.status == 201, body
            return body, response.headers.get("Idempotent-Replay") == "true"

    async def create_until_it_breaks(self, session: aiohttp.ClientSession, numbers: range) -> None:
        try:
            for number in numbers:
                self.answers[number] = (await self.create(session, number))[0]
                if len(self.answers) == CREATES // 2:
                    self.half_done.set()
        except aiohttp.ClientError:
            return

    async def create_all(self, session: aiohttp.ClientSession, shares: list[range]) -> list[tuple[bytes, bool]]:
        """Create the agents of the ranges concurrently, those of a range one by one; returns the results in order."""

        async def one_by_one(numbers: range) -> list[tuple[bytes, bool]]:
            return [await self.create(session, number) for number in numbers]

        return [each for share in await asyncio.gather(*map(one_by_one, shares)) for each in share]

    async def names(self, session: aiohttp.ClientSession) -> list[str]:
        """The names of all agents, newest first."""
        found: list[str] = []
        while True:
            parameters = {"limit": "100", "offset": str(len(found))}
            async with session.get(self._url, params=parameters, headers=self._headers) as response:
                page = (await response.json())["data"]
            if not page:
                return found
            found += [agent["name"] for agent in page]


async def test_a_kill_during_200_creates_loses_none_that_was_confirmed(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, aiohttp.ClientSession() as session:
        creator = Creator(server, await server.key())
        shares = [range(first, CREATES, AT_ONCE) for first in range(AT_ONCE)]
        under_way = asyncio.gather(*(creator.create_until_it_breaks(session, share) for share in shares))
        await creator.half_done.wait()
        await server.kill()
        await under_way
        answered = dict(creator.answers)
        assert CREATES // 2 <= len(answered) < CREATES
        await server.start()
        stored_names = await creator.names(session)
        assert {f"agent {number}" for number in answered} <= set(stored_names)
        assert len(set(stored_names)) == len(stored_names)
        numbers = [number for share in shares for number in share]
        for number, (body, replayed) in zip(numbers, await creator.create_all(session, shares), strict=True):
            if number in answered:
                assert (body, replayed) == (answered[number], True)
            else:
                assert replayed is (f"agent {number}" in stored_names)
        assert sorted(await creator.names(session)) == sorted(f"agent {number}" for number in range(CREATES))
