"""The semaphore that organizations share."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from calls.fair_semaphore import FairSemaphore


async def acquire_all(semaphore: FairSemaphore, owner: str, count: int) -> int:
    """Returns how many of `count` slots an owner gets; the other acquires go on waiting."""
    tasks = [asyncio.create_task(semaphore.acquire(owner)) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return sum(task.done() for task in tasks)


@pytest.mark.parametrize("hogs", [1, 2, 4, 6])
async def test_greedy_owners_leave_slots_for_the_next(hogs: int) -> None:
    semaphore = FairSemaphore(128)
    got = [await acquire_all(semaphore, f"hog {each}", 200) for each in range(hogs)]
    assert got[0] == 64, "alone it gets half"
    assert await acquire_all(semaphore, "next", 4) >= (1 if hogs == 6 else 4)


async def test_no_owner_has_more_than_its_limit() -> None:
    assert await acquire_all(FairSemaphore(128, 32), "hog", 200) == 32


async def test_a_released_slot_goes_to_the_owner_with_the_fewest() -> None:
    semaphore = FairSemaphore(2)
    await semaphore.acquire("a")
    order: list[str] = []

    async def wait(owner: str) -> None:
        await semaphore.acquire(owner)
        order.append(owner)
        semaphore.release(owner)

    async with asyncio.TaskGroup() as group:
        for owner in ("a", "a", "b", "c", "a"):
            group.create_task(wait(owner))
        await asyncio.sleep(0.01)
        semaphore.release("a")
    assert order[0] == "b"
    assert sorted(order) == ["a", "a", "a", "b", "c"]


async def test_a_cancelled_waiter_leaves_its_turn_to_others() -> None:
    semaphore = FairSemaphore(1)
    await semaphore.acquire("a")
    first, second = (asyncio.create_task(semaphore.acquire(owner)) for owner in ("b", "c"))
    await asyncio.sleep(0)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    assert semaphore.waiter_count("b") == 0
    semaphore.release("a")
    await asyncio.wait_for(second, 5)


async def test_a_slot_that_is_granted_to_a_cancelled_waiter_is_not_lost() -> None:
    semaphore = FairSemaphore(1)
    await semaphore.acquire("a")
    waiting = asyncio.create_task(semaphore.acquire("b"))
    await asyncio.sleep(0)
    semaphore.release("a")
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    assert semaphore.can_acquire("c")


@pytest.mark.parametrize("before", [True, False])
async def test_waiters_cancelled_at_a_release_take_no_turn_of_others(before: bool) -> None:
    semaphore = FairSemaphore(1)
    await semaphore.acquire("a")
    gone = [asyncio.create_task(semaphore.acquire("b")) for _ in range(3)]
    stays = asyncio.create_task(semaphore.acquire("b"))
    await asyncio.sleep(0)
    if not before:
        semaphore.release("a")
    for each in gone:
        each.cancel()
    if before:
        semaphore.release("a")
    await asyncio.wait(gone)
    assert [each.cancelled() for each in gone] == [True] * 3
    await asyncio.wait_for(stays, 5)
    semaphore.release("b")
    assert semaphore.can_acquire("c") and semaphore.waiter_count("b") == 0
