"""Concurrency limits of outbound requests: one organization leaves slots for the others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from calls.http_egress.concurrency import HttpEgressConcurrency


async def in_a_slot(
    concurrency: HttpEgressConcurrency, organization: str, begun: list[str], end: asyncio.Event
) -> None:
    async with concurrency.slot(organization):
        begun.append(organization)
        await end.wait()


async def until_settled() -> None:
    """Wait until every task that can run has run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_organization_with_its_share_waits_and_another_does_not() -> None:
    concurrency, begun, end = HttpEgressConcurrency(limit=4, owner_limit=2), list[str](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for organization in ("slow", "slow", "slow", "slow", "quick"):
            group.create_task(in_a_slot(concurrency, organization, begun, end))
        await until_settled()
        assert begun == ["slow", "slow", "quick"]
        end.set()
    assert sorted(begun) == ["quick", "slow", "slow", "slow", "slow"]


async def test_all_organizations_together_do_not_exceed_the_limit() -> None:
    concurrency, begun, end = HttpEgressConcurrency(limit=3, owner_limit=2), list[str](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for organization in ("a", "a", "b", "b", "c"):
            group.create_task(in_a_slot(concurrency, organization, begun, end))
        await until_settled()
        assert begun == ["a", "a", "b"]
        end.set()
    assert sorted(begun) == ["a", "a", "b", "b", "c"]


async def test_a_cancelled_waiter_takes_no_slot() -> None:
    concurrency, begun, end = HttpEgressConcurrency(limit=1, owner_limit=1), list[str](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(in_a_slot(concurrency, "a", begun, end))
        impatient = [group.create_task(in_a_slot(concurrency, each, begun, end)) for each in ("a", "b")]
        await until_settled()
        for each in impatient:
            each.cancel()
        await until_settled()
        end.set()
        await first
    async with AsyncExitStack() as stack, asyncio.timeout(5):
        await stack.enter_async_context(concurrency.slot("b"))
    assert begun == ["a"]


async def test_a_slot_is_released_when_its_request_fails() -> None:
    concurrency = HttpEgressConcurrency(limit=1, owner_limit=1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(5), concurrency.slot("a"):
                raise ZeroDivisionError


async def test_an_organization_without_requests_uses_no_memory() -> None:
    concurrency = HttpEgressConcurrency()
    async with concurrency.slot("a"), concurrency.slot("a"), concurrency.slot("b"):
        assert set(concurrency._held) == {"a", "b"}
    assert not concurrency._held
