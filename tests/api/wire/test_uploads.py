"""Large bodies come in turns, and the wait for a turn costs nobody their deadline."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from aiohttp import web

from api.resources import background_sounds
from api.serving import upload_slots
from api.serving.upload_slots import MAX_CONCURRENT
from tests.api.resources.test_background_sounds import upload
from tests.api.wire.conftest import Live, Serve, Wire

LARGE = 2**20 + 1
BODY = b'{"name": "' + b" " * (LARGE - 12) + b'"}'
"""Not an upload that is taken: a refusal ends it too."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
DEADLINE_S = 0.5


async def _hang(_request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
async def live(serve: Serve) -> Live:
    return await serve({"/hang": _hang}, request_timeout_s=DEADLINE_S)


def _head(live: Live, length: int = LARGE, path: str = "/v1/background-sounds") -> bytes:
    return live.head("POST", path, f"Content-Length: {length}", "Expect: 100-continue")


async def _asking(live: Live, **more: Any) -> Wire:
    """A client that has sent the head of an upload, and its body not before it is told to."""
    wire = await live.connect()
    await wire.send(_head(live, **more))
    return wire


async def _told_to_send(wire: Wire) -> bool:
    return await wire.reader.readexactly(len(CONTINUE)) == CONTINUE


async def _full(live: Live, **more: Any) -> list[Wire]:
    wires = [await _asking(live, **more) for _ in range(MAX_CONCURRENT // 2)]
    assert all([await _told_to_send(wire) for wire in wires])
    return wires


async def test_one_more_is_read_when_one_before_it_has_ended(live: Live) -> None:
    places = await _full(live)
    late = await _asking(live)
    other = await live.connect()
    assert (await other.ask(live.head("GET", "/hang"))).status == 503, "a deadline has passed"
    told = asyncio.create_task(_told_to_send(late))
    assert (await other.ask(live.head("GET", "/v1/agents"))).status == 200
    assert not told.done()
    assert (await places[0].ask(BODY)).status == 400
    assert await told
    assert (await late.ask(BODY)).status == 400


async def test_a_client_that_goes_away_leaves_its_place(live: Live) -> None:
    places = await _full(live)
    late = await _asking(live)
    places[0].writer.close()
    assert await _told_to_send(late)


async def test_small_bodies_and_those_too_large_wait_for_nothing(live: Live) -> None:
    await _full(live)
    small = await _asking(live, length=2**20)
    assert await _told_to_send(small)
    assert (await (await live.connect()).ask(live.post(b'{"name": "a"}'))).status == 201
    assert (await (await live.connect()).ask(_head(live, length=2**25))).status == 413


async def test_a_body_without_a_length_waits_like_a_large_one(live: Live) -> None:
    places = await _full(live)
    late = await live.connect()
    chunked = ("Transfer-Encoding: chunked", "Expect: 100-continue")
    await late.send(live.head("POST", "/v1/knowledge", *chunked))
    told = asyncio.create_task(_told_to_send(late))
    assert (await (await live.connect()).ask(live.head("GET", "/v1/agents"))).status == 200
    assert not told.done()
    assert (await places[0].ask(BODY)).status == 400
    assert await told


async def test_more_than_may_wait_are_503(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_slots, "MAX_WAITING", 1)
    places = await _full(live)
    waiting = await _asking(live)
    refused = await (await live.connect()).ask(_head(live))
    assert (refused.status, refused.json) == (503, {"error": "Too many uploads at once"})
    assert refused.headers["retry-after"] == "10"
    assert (await places[0].ask(BODY)).status == 400
    assert await _told_to_send(waiting)


async def test_a_wait_that_takes_too_long_is_503_and_takes_no_place(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_slots, "MAX_WAIT_S", 0.05)
    places = await _full(live)
    assert (await (await live.connect()).ask(_head(live))).status == 503
    assert (await places[0].ask(BODY)).status == 400
    assert await _told_to_send(await _asking(live))


async def test_work_that_goes_on_after_its_request_keeps_its_place(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off, heard = threading.Event(), background_sounds._decoded

    def late(content: bytes) -> Any:
        cut_off.wait(30)
        return heard(content)

    monkeypatch.setattr(background_sounds, "_decoded", late)
    content = "AAAA" * (LARGE // 4)
    body = (
        f'{{"name": "a", "filename": "a", "mimeType": "audio/wav", "fileBase64": "{content}", '
        f'"fileSize": {len(content) // 4 * 3}}}'
    ).encode()
    first = (await _full(live, length=len(body)))[0]
    late_one = await _asking(live)
    try:
        assert (await first.ask(body)).status == 503
        told = asyncio.create_task(_told_to_send(late_one))
        assert (await (await live.connect()).ask(live.head("GET", "/v1/agents"))).status == 200
        assert not told.done()
    finally:
        cut_off.set()
    assert await told


async def test_an_organization_that_fills_its_places_keeps_no_other_waiting(live: Live) -> None:
    await _full(live)
    late = await _asking(live)
    told = asyncio.create_task(_told_to_send(late))
    other = await live.connect()
    another = await live.api.of_another_organization()
    head = _head(live).replace(live.api.key.encode(), another.key.encode())
    await other.send(head)
    async with asyncio.timeout(5):
        assert await _told_to_send(other)
    assert not told.done()
    told.cancel()


async def test_sounds_of_one_organization_leave_a_place_to_decode_anothers(serve: Serve) -> None:
    live = await serve()
    places, hog = background_sounds._DECODE_SLOTS, live.api.organization_id
    taken = [asyncio.create_task(places.acquire(hog)) for _ in range(100)]
    await asyncio.sleep(0)
    other = await live.api.of_another_organization()
    behind = asyncio.create_task(live.api("POST", "/background-sounds", upload(b"no sound")))
    async with asyncio.timeout(5):
        while places.waiting(hog) < 99:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)
        assert (await other("POST", "/background-sounds", upload(b"no sound")))[0] == 400
    assert not behind.done()
    assert sum(each.done() for each in taken) == 2
    for each in taken:
        if each.done():
            places.release(hog)
        each.cancel()
    await asyncio.wait(taken)
    assert (await behind)[0] == 400
