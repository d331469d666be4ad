"""Memory of response bodies: limits for each organization, waiting, release."""

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
    """True for each task that still waits."""
    for _ in range(3):
        await asyncio.sleep(0)
    return [not each.done() for each in waits]


async def test_an_organization_has_a_limit_of_bytes_and_other_organizations_do_not_wait() -> None:
    memory = ResponseMemory(max_bytes=100, max_small=0)
    first = await memory.reserve("a", 60)
    second = asyncio.create_task(memory.reserve("a", 60))
    third = asyncio.create_task(memory.reserve("a", 10))
    assert await _waiting(second, third) == [True, True], "the order stays: a small one passes no large one"
    await memory.reserve("b", 60)
    await memory.reserve(None, 1000)
    first.resize(40)
    assert await _waiting(second, third) == [False, True]
    first.release()
    first.release()
    assert await _waiting(third) == [False]
    assert memory.reserved("a") == 70


async def test_a_single_response_may_have_any_size() -> None:
    memory = ResponseMemory(max_bytes=100, max_small=0)
    old = await memory.reserve("a", 1000)
    next_one = asyncio.create_task(memory.reserve("a", 1))
    assert await _waiting(next_one) == [True]
    old.release()
    await next_one


async def test_memory_reserved_without_waiting_counts() -> None:
    memory = ResponseMemory(max_bytes=100, max_small=0)
    created = memory.reserve_now("a", 0)
    created.resize(150)
    reading = asyncio.create_task(memory.reserve("a", 1))
    assert await _waiting(reading) == [True]
    created.release()
    await reading


async def test_a_cancelled_request_leaves_the_queue() -> None:
    memory = ResponseMemory(max_bytes=100, max_small=0)
    first = await memory.reserve("a", 100)
    cancelled, admitted_and_cancelled, last = (asyncio.create_task(memory.reserve("a", 100)) for _ in range(3))
    await _waiting(cancelled)
    cancelled.cancel()
    assert await _waiting(cancelled, admitted_and_cancelled, last) == [False, True, True]
    first.release()
    admitted_and_cancelled.cancel()
    await asyncio.wait((last,), timeout=10)
    (await last).release()
    assert memory.reserved("a") == 0


async def test_too_many_waiting_requests_get_unavailable() -> None:
    memory = ResponseMemory(max_bytes=100, max_waiting=2, max_small=0)
    await memory.reserve("a", 100)
    waits = [asyncio.create_task(memory.reserve("a", 100)) for _ in range(2)]
    await _waiting(*waits)
    with pytest.raises(Unavailable) as error:
        await memory.reserve("a", 1)
    assert error.value.retry_after_s
    await memory.reserve("b", 100)
    for each in waits:
        each.cancel()


async def test_cancelled_requests_in_the_queue_do_not_count() -> None:
    memory = ResponseMemory(max_bytes=100, max_waiting=2, max_small=0)
    await memory.reserve("a", 100)
    head = asyncio.create_task(memory.reserve("a", 100))
    await _waiting(head)
    for _ in range(3):
        cancelled = asyncio.create_task(memory.reserve("a", 100))
        await _waiting(cancelled)
        cancelled.cancel()
        assert await _waiting(head, cancelled) == [True, False]
    last = asyncio.create_task(memory.reserve("a", 100))
    assert await _waiting(head, last) == [True, True]
    for each in (head, last):
        each.cancel()


async def test_small_responses_do_not_wait_for_large_ones_but_have_a_limit() -> None:
    memory = ResponseMemory(max_bytes=100, max_small=10, small_allowance=20)
    page = await memory.reserve("a", 100)
    waiting_page = asyncio.create_task(memory.reserve("a", 11))
    small = [asyncio.create_task(memory.reserve("a", 10)) for _ in range(3)]
    assert await _waiting(waiting_page, *small) == [True, False, False, True]
    assert memory.reserved("a") == 120
    page.release()
    assert await _waiting(waiting_page, *small) == [False] * 4


def _a_cycle_with(response: StreamedJsonResponse) -> None:
    cycle: list[object] = [response]
    cycle.append(cycle)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Garbage is collected only when the test does it."""
    gc.disable()
    yield
    gc.enable()


async def test_a_response_that_is_never_sent_releases_its_memory() -> None:
    memory = ResponseMemory()
    response = StreamedJsonResponse(200, [bytes(CHUNK)] * 3, memory.reserve_now("a", 3 * CHUNK))
    assert (memory.reserved("a"), response.content_length) == (3 * CHUNK, 3 * CHUNK)
    del response
    gc.collect()
    await asyncio.sleep(0)
    assert memory.reserved("a") == 0


@pytest.mark.usefixtures("no_collection")
async def test_memory_is_released_on_the_event_loop_whichever_thread_collects_garbage() -> None:
    threads: list[int] = []
    _a_cycle_with(StreamedJsonResponse(200, [b"x"], MemoryReservation(1, lambda _more: threads.append(get_ident()))))
    await asyncio.to_thread(gc.collect)
    await asyncio.sleep(0)
    assert threads == [get_ident()]


@pytest.mark.usefixtures("no_collection")
def test_a_response_that_outlives_the_event_loop_is_dropped_without_error(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[int] = []

    async def never_sent() -> None:
        _a_cycle_with(StreamedJsonResponse(200, [b"x"], MemoryReservation(1, changes.append)))

    asyncio.run(never_sent())
    failed: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *what: failed.append(what))
    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    gc.collect()
    assert (changes, failed) == ([], [])
