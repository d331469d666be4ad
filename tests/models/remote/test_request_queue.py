"""The requests under way at one remote model, and who is next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from models.errors import RemoteModelError
from models.remote.adaptive_limit import GROWTH_S
from models.remote.request_queue import Priority, RequestQueue
from models.runtime.request_context import RequestContext, requests_for

LONG_S = 60.0


class Load:
    """Requests that wait for a queue, and hold their slots until they are told to end."""

    def __init__(self, limit: int) -> None:
        self.now_s = 0.0
        self.queue = RequestQueue("gpu", limit, lambda: self.now_s)
        self.admitted: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def send(
        self, name: str, organization: str = "", call: str = "", priority: Priority = Priority.LIVE
    ) -> asyncio.Task[None]:
        self._ends[name] = asyncio.Event()
        with requests_for(RequestContext(organization, "agent", call)):
            self._tasks[name] = task = asyncio.create_task(self._run(name, priority))
        await settle()
        return task

    async def _run(self, name: str, priority: Priority) -> None:
        async with self.queue.slot(priority, LONG_S):
            self.admitted.append(name)
            await self._ends[name].wait()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]
        await settle()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def load_of() -> AsyncIterator[Callable[[int], Load]]:
    loads: list[Load] = []

    def make(limit: int) -> Load:
        loads.append(Load(limit))
        return loads[-1]

    yield make
    for load in loads:
        await load.close()


async def test_who_is_alone_uses_the_whole_limit(load_of: Callable[[int], Load]) -> None:
    load = load_of(3)
    for name in "abcd":
        await load.send(name, "one")
    assert load.admitted == ["a", "b", "c"]
    await load.end("b")
    assert load.admitted == ["a", "b", "c", "d"]


async def test_organizations_take_turns_whatever_the_number_of_their_requests(load_of: Callable[[int], Load]) -> None:
    load = load_of(2)
    for name in ("a1", "a2", "a3", "a4"):
        await load.send(name, "greedy")
    for name in ("b1", "b2"):
        await load.send(name, "small")
    assert load.admitted == ["a1", "a2"]
    for name in ("a1", "b1", "a2"):
        await load.end(name)
    assert load.admitted == ["a1", "a2", "b1", "b2", "a3"]


async def test_calls_of_an_organization_take_turns(load_of: Callable[[int], Load]) -> None:
    load = load_of(2)
    for name in ("a1", "a2", "a3"):
        await load.send(name, "one", "busy call")
    await load.send("b1", "one", "other call")
    await load.end("a1")
    assert load.admitted == ["a1", "a2", "b1"]


async def test_requests_for_which_nobody_waits_yield_and_leave_places_free(load_of: Callable[[int], Load]) -> None:
    load = load_of(4)
    for name in ("x1", "x2", "x3", "x4"):
        await load.send(name, priority=Priority.BACKGROUND)
    assert load.admitted == ["x1", "x2", "x3"], "one of four places is for callers"
    for name in ("a1", "a2"):
        await load.send(name)
    assert load.admitted == ["x1", "x2", "x3", "a1"]
    await load.end("x1")
    assert load.admitted == ["x1", "x2", "x3", "a1", "a2"], "although x4 has waited longer"


async def test_who_waits_too_long_is_told_and_leaves_no_trace(load_of: Callable[[int], Load]) -> None:
    load = load_of(1)
    await load.send("a")
    with pytest.raises(RemoteModelError) as raised:
        async with load.queue.slot(Priority.LIVE, 0.01):
            pass
    assert (raised.value.kind, raised.value.counts_against_server) == ("busy", False)
    assert raised.value.message == "gpu is still busy with 1 requests of this server"
    await load.end("a")
    assert load.queue.in_flight == 0
    await load.send("b")
    assert load.admitted == ["a", "b"]


async def test_a_cancelled_request_gives_its_place_to_the_next(load_of: Callable[[int], Load]) -> None:
    load = load_of(1)
    running, waiting = await load.send("a"), await load.send("b")
    await load.send("c")
    waiting.cancel()
    running.cancel()
    await settle()
    assert load.admitted == ["a", "c"]
    assert load.queue.in_flight == 1


async def test_after_a_refusal_fewer_requests_are_sent_until_the_limit_has_grown(
    load_of: Callable[[int], Load],
) -> None:
    load = load_of(4)
    for name in "abcd":
        await load.send(name)
    load.queue.on_refused(None)
    for name in "abc":
        await load.end(name)
    for name in ("e", "f"):
        await load.send(name)
    assert load.admitted == ["a", "b", "c", "d", "e"], "two at once"
    load.now_s = 1.0
    await asyncio.sleep(GROWTH_S / 2)
    assert load.admitted[-1] == "f"


async def test_a_server_that_refuses_the_only_request_is_not_asked(load_of: Callable[[int], Load]) -> None:
    load = load_of(4)
    await load.send("a")
    load.queue.on_refused(10)
    await load.end("a")
    with pytest.raises(RemoteModelError, match="gpu has too many requests and is not asked for 10 s"):
        async with load.queue.slot(Priority.LIVE, 1):
            pass
