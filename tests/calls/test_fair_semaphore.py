"""A semaphore that organizations share."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from calls.fair_semaphore import FairSemaphore


async def acquire_all(semaphore: FairSemaphore, owner: str, wanted: int) -> int:
    """How many of the places an owner gets that wants so many; the others go on waiting."""
    turns = [asyncio.create_task(semaphore.acquire(owner)) for _ in range(wanted)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return sum(turn.done() for turn in turns)


@pytest.mark.parametrize("hogs", [1, 2, 4, 6])
async def test_owners_that_hold_on_to_all_they_get_leave_room_to_the_next(hogs: int) -> None:
    semaphore = FairSemaphore(128)
    got = [await acquire_all(semaphore, f"hog {each}", 200) for each in range(hogs)]
    assert got[0] == 64, "alone, it has half"
    assert await acquire_all(semaphore, "next", 4) >= (1 if hogs == 6 else 4)


async def test_no_owner_has_more_than_its_bound() -> None:
    assert await acquire_all(FairSemaphore(128, 32), "hog", 200) == 32


async def test_what_is_given_back_goes_to_the_owner_with_the_fewest() -> None:
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


async def test_whoever_gives_up_waiting_leaves_its_turn_to_others() -> None:
    semaphore = FairSemaphore(1)
    await semaphore.acquire("a")
    first, second = (asyncio.create_task(semaphore.acquire(owner)) for owner in ("b", "c"))
    await asyncio.sleep(0)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    assert semaphore.waiting("b") == 0
    semaphore.release("a")
    await asyncio.wait_for(second, 5)


async def test_a_place_that_comes_as_its_owner_gives_up_is_not_lost() -> None:
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
async def test_waiters_that_give_up_as_a_slot_comes_free_take_no_turn_of_others(before: bool) -> None:
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
    assert semaphore.can_acquire("c") and semaphore.waiting("b") == 0
