"""Limits of concurrent calls while many INVITEs come at once, at one or two nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from calls.admission.concurrency_limits import ConcurrencyLimits
from tests.calls.call_service_harness import CallServiceHarness, WatchedDatabase, call_service, until
from tests.fakes.fake_leg import Phone
from tests.peers import postgresql


@asynccontextmanager
async def nodes(
    folder: Path, *names: str, limits: ConcurrencyLimits | None = None
) -> AsyncIterator[list[CallServiceHarness]]:
    """Nodes with these names, of one database."""
    server = await asyncio.to_thread(postgresql.server)
    url = await asyncio.to_thread(server.take_database)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, server.give_back, url)
        yield [
            await stack.enter_async_context(
                call_service(folder / name, database=WatchedDatabase(url, name), limits=limits)
            )
            for name in names
        ]


async def decided(harness: CallServiceHarness, phones: list[Phone]) -> tuple[int, list[int]]:
    """Waits until each INVITE was admitted or rejected. Returns how many were admitted, and the rejections."""

    def rejections() -> list[int]:
        return [code for phone in phones for code in phone.sent if code >= 300]

    await until(lambda: harness.service.active_call_count + len(rejections()) == len(phones))
    return harness.service.active_call_count, rejections()


async def test_two_nodes_admit_exactly_as_many_calls_as_an_organization_may_have(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b") as (a, b):
        await a.create_number(max_calls=7)
        phones = [[harness.invite() for _ in range(12)] for harness in (a, b)]
        admitted_by_a, rejected_by_a = await decided(a, phones[0])
        admitted_by_b, rejected_by_b = await decided(b, phones[1])
        assert admitted_by_a + admitted_by_b == 7
        assert {*rejected_by_a, *rejected_by_b} == {486}


async def test_a_node_admits_exactly_as_many_calls_of_all_organizations_as_it_may_have(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", limits=ConcurrencyLimits(process=5)) as (a,):
        numbers = [f"+493010{number}" for number in range(6)]
        for number in numbers:
            await a.create_number(number)
        phones = [a.invite(dials=number) for _ in range(3) for number in numbers]
        assert await decided(a, phones) == (5, [503] * 13)
