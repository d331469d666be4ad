"""How many bytes of answers an organization has in memory, and who waits for that."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from threading import get_ident

import pytest

from api.http.response_streaming import CHUNK, MemoryReservation, ResponseMemory, StreamedJsonResponse
from config.errors import Unavailable


async def _waiting(*waits: asyncio.Task[object]) -> list[bool]:
    """Which of these wait."""
    for _ in range(3):
        await asyncio.sleep(0)
    return [not each.done() for each in waits]


async def test_an_organization_has_so_many_bytes_and_no_other_waits_for_it() -> None:
    rooms = ResponseMemory(most_bytes=100, small=0)
    first = await rooms.reserve("a", 60)
    second = asyncio.create_task(rooms.reserve("a", 60))
    third = asyncio.create_task(rooms.reserve("a", 10))
    assert await _waiting(second, third) == [True, True], "the order stays: a small one passes no large one"
    await rooms.reserve("b", 60)
    await rooms.reserve(None, 1000)
    first.resize(40)
    assert await _waiting(second, third) == [False, True]
    first.release()
    first.release()
    assert await _waiting(third) == [False]
    assert rooms.reserved("a") == 70


async def test_one_answer_may_be_of_any_size() -> None:
    rooms = ResponseMemory(most_bytes=100, small=0)
    old = await rooms.reserve("a", 1000)
    next_one = asyncio.create_task(rooms.reserve("a", 1))
    assert await _waiting(next_one) == [True]
    old.release()
    await next_one


async def test_what_was_made_without_waiting_counts() -> None:
    rooms = ResponseMemory(most_bytes=100, small=0)
    made = rooms.reserve_now("a", 0)
    made.resize(150)
    reading = asyncio.create_task(rooms.reserve("a", 1))
    assert await _waiting(reading) == [True]
    made.release()
    await reading


async def test_one_that_waits_no_more_leaves_its_place() -> None:
    rooms = ResponseMemory(most_bytes=100, small=0)
    first = await rooms.reserve("a", 100)
    gone, let_in_and_gone, last = (asyncio.create_task(rooms.reserve("a", 100)) for _ in range(3))
    await _waiting(gone)
    gone.cancel()
    assert await _waiting(gone, let_in_and_gone, last) == [False, True, True]
    first.release()
    let_in_and_gone.cancel()
    await asyncio.wait((last,), timeout=10)
    (await last).release()
    assert rooms.reserved("a") == 0


async def test_too_many_are_told_to_come_again() -> None:
    rooms = ResponseMemory(most_bytes=100, most_waiting=2, small=0)
    await rooms.reserve("a", 100)
    waits = [asyncio.create_task(rooms.reserve("a", 100)) for _ in range(2)]
    await _waiting(*waits)
    with pytest.raises(Unavailable) as refused:
        await rooms.reserve("a", 1)
    assert refused.value.retry_after_s
    await rooms.reserve("b", 100)
    for each in waits:
        each.cancel()


async def test_those_that_wait_no_more_do_not_count_behind_one_that_does() -> None:
    rooms = ResponseMemory(most_bytes=100, most_waiting=2, small=0)
    await rooms.reserve("a", 100)
    head = asyncio.create_task(rooms.reserve("a", 100))
    await _waiting(head)
    for _ in range(3):
        gone = asyncio.create_task(rooms.reserve("a", 100))
        await _waiting(gone)
        gone.cancel()
        assert await _waiting(head, gone) == [True, False]
    last = asyncio.create_task(rooms.reserve("a", 100))
    assert await _waiting(head, last) == [True, True]
    for each in (head, last):
        each.cancel()


async def test_small_answers_wait_for_no_large_ones_but_have_a_bound() -> None:
    rooms = ResponseMemory(most_bytes=100, small=10, reserve=20)
    page = await rooms.reserve("a", 100)
    waiting_page = asyncio.create_task(rooms.reserve("a", 11))
    small = [asyncio.create_task(rooms.reserve("a", 10)) for _ in range(3)]
    assert await _waiting(waiting_page, *small) == [True, False, False, True]
    assert rooms.reserved("a") == 120
    page.release()
    assert await _waiting(waiting_page, *small) == [False] * 4


def _a_cycle_with(response: StreamedJsonResponse) -> None:
    cycle: list[object] = [response]
    cycle.append(cycle)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Garbage is collected when a test says so."""
    gc.disable()
    yield
    gc.enable()


async def test_an_answer_that_is_never_sent_gives_its_room_back() -> None:
    rooms = ResponseMemory()
    response = StreamedJsonResponse(200, [bytes(CHUNK)] * 3, rooms.reserve_now("a", 3 * CHUNK))
    assert (rooms.reserved("a"), response.content_length) == (3 * CHUNK, 3 * CHUNK)
    del response
    gc.collect()
    await asyncio.sleep(0)
    assert rooms.reserved("a") == 0


@pytest.mark.usefixtures("no_collection")
async def test_room_is_given_back_on_the_loop_whatever_thread_collects_garbage() -> None:
    threads: list[int] = []
    _a_cycle_with(StreamedJsonResponse(200, [b"x"], MemoryReservation(1, lambda _more: threads.append(get_ident()))))
    await asyncio.to_thread(gc.collect)
    await asyncio.sleep(0)
    assert threads == [get_ident()]


@pytest.mark.usefixtures("no_collection")
def test_an_answer_that_outlives_the_loop_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[int] = []

    async def never_sent() -> None:
        _a_cycle_with(StreamedJsonResponse(200, [b"x"], MemoryReservation(1, changes.append)))

    asyncio.run(never_sent())
    failed: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *what: failed.append(what))
    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    gc.collect()
    assert (changes, failed) == ([], [])
