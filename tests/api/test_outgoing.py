"""How many bytes of answers an organization has in memory, and who waits for that."""

from __future__ import annotations

import asyncio
import gc

import pytest

from api.outgoing import PIECE, AnswerRoom, PiecesResponse
from config.errors import Unavailable


async def _waiting(*waits: asyncio.Task[object]) -> list[bool]:
    """Which of these wait."""
    for _ in range(3):
        await asyncio.sleep(0)
    return [not each.done() for each in waits]


async def test_an_organization_has_so_many_bytes_and_no_other_waits_for_it() -> None:
    rooms = AnswerRoom(most_bytes=100)
    first = await rooms.wait_for("a", 60)
    second = asyncio.create_task(rooms.wait_for("a", 60))
    third = asyncio.create_task(rooms.wait_for("a", 10))
    assert await _waiting(second, third) == [True, True], "the order stays: a small one passes no large one"
    await rooms.wait_for("b", 60)
    await rooms.wait_for(None, 1000)
    first.becomes(40)
    assert await _waiting(second, third) == [False, True]
    first.free()
    first.free()
    assert await _waiting(third) == [False]
    assert rooms.taken("a") == 70


async def test_one_answer_may_be_of_any_size() -> None:
    rooms = AnswerRoom(most_bytes=100)
    old = await rooms.wait_for("a", 1000)
    next_one = asyncio.create_task(rooms.wait_for("a", 1))
    assert await _waiting(next_one) == [True]
    old.free()
    await next_one


async def test_what_was_made_without_waiting_counts() -> None:
    rooms = AnswerRoom(most_bytes=100)
    made = rooms.take("a", 0)
    made.becomes(150)
    reading = asyncio.create_task(rooms.wait_for("a", 1))
    assert await _waiting(reading) == [True]
    made.free()
    await reading


async def test_one_that_waits_no_more_leaves_its_place() -> None:
    rooms = AnswerRoom(most_bytes=100)
    first = await rooms.wait_for("a", 100)
    gone, let_in_and_gone, last = (asyncio.create_task(rooms.wait_for("a", 100)) for _ in range(3))
    await _waiting(gone)
    gone.cancel()
    assert await _waiting(gone, let_in_and_gone, last) == [False, True, True]
    first.free()
    let_in_and_gone.cancel()
    await asyncio.wait((last,), timeout=10)
    (await last).free()
    assert rooms.taken("a") == 0


async def test_too_many_are_told_to_come_again() -> None:
    rooms = AnswerRoom(most_bytes=100, most_waiting=2)
    await rooms.wait_for("a", 100)
    waits = [asyncio.create_task(rooms.wait_for("a", 100)) for _ in range(2)]
    await _waiting(*waits)
    with pytest.raises(Unavailable) as refused:
        await rooms.wait_for("a", 1)
    assert refused.value.retry_after_s
    await rooms.wait_for("b", 100)
    for each in waits:
        each.cancel()


def test_an_answer_that_is_never_sent_gives_its_room_back() -> None:
    rooms = AnswerRoom()
    response = PiecesResponse(200, [bytes(PIECE)] * 3, rooms.take("a", 3 * PIECE))
    assert (rooms.taken("a"), response.content_length) == (3 * PIECE, 3 * PIECE)
    del response
    gc.collect()
    assert rooms.taken("a") == 0
