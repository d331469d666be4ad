"""Upload slots: large bodies wait for one, and their request timeout is paused meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from aiohttp import web

from api.resources.sounds import sound_decoding
from api.serving import upload_slots
from api.serving.upload_slots import MAX_CONCURRENT
from media.background import decoder
from tests import database_template
from tests.api.resources.test_background_sounds import upload
from tests.api.wire.conftest import Live, Serve, Wire

LARGE = 2**20 + 1
BODY = b'{"name": "' + b" " * (LARGE - 12) + b'"}'
"""A body that is rejected, which also ends the upload."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
DEADLINE_S = 0.5


async def _hang(_request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
async def live(serve: Serve) -> Live:
    served = await serve({"/hang": _hang}, request_timeout_s=DEADLINE_S)
    await database_template.settled(served.api.services.database)  # uploads wait in their order if no key is read
    return served


def _head(live: Live, length: int = LARGE, path: str = "/v1/background-sounds") -> bytes:
    return live.head("POST", path, f"Content-Length: {length}", "Expect: 100-continue")


async def _start_upload(live: Live, **more: Any) -> Wire:
    """Sends the head of an upload with `Expect: 100-continue`; returns the connection."""
    wire = await live.connect()
    await wire.send(_head(live, **more))
    return wire


async def _gets_continue(wire: Wire) -> bool:
    return await wire.reader.readexactly(len(CONTINUE)) == CONTINUE


async def _take_all_slots(live: Live, **more: Any) -> list[Wire]:
    wires = [await _start_upload(live, **more) for _ in range(MAX_CONCURRENT // 2)]
    assert all([await _gets_continue(wire) for wire in wires])
    return wires


async def test_the_next_upload_is_read_when_one_has_ended(live: Live) -> None:
    places = await _take_all_slots(live)
    late = await _start_upload(live)
    other = await live.connect()
    assert (await other.ask(live.head("GET", "/hang"))).status == 503, "a deadline has passed"
    continued = asyncio.create_task(_gets_continue(late))
    assert (await other.ask(live.head("GET", "/v1/agents"))).status == 200
    assert not continued.done()
    assert (await places[0].ask(BODY)).status == 400
    assert await continued
    assert (await late.ask(BODY)).status == 400


async def test_a_client_that_disconnects_releases_its_slot(live: Live) -> None:
    places = await _take_all_slots(live)
    late = await _start_upload(live)
    places[0].writer.close()
    assert await _gets_continue(late)


async def test_small_and_too_large_bodies_do_not_wait_for_a_slot(live: Live) -> None:
    await _take_all_slots(live)
    small = await _start_upload(live, length=2**20)
    assert await _gets_continue(small)
    assert (await (await live.connect()).ask(live.post(b'{"name": "a"}'))).status == 201
    assert (await (await live.connect()).ask(_head(live, length=2**25))).status == 413


async def test_a_body_without_a_length_waits_like_a_large_one(live: Live) -> None:
    places = await _take_all_slots(live)
    late = await live.connect()
    chunked = ("Transfer-Encoding: chunked", "Expect: 100-continue")
    await late.send(live.head("POST", "/v1/knowledge", *chunked))
    continued = asyncio.create_task(_gets_continue(late))
    assert (await (await live.connect()).ask(live.head("GET", "/v1/agents"))).status == 200
    assert not continued.done()
    assert (await places[0].ask(BODY)).status == 400
    assert await continued


async def test_too_many_waiting_uploads_are_503(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_slots, "MAX_WAITING", 1)
    places = await _take_all_slots(live)
    waiting = await _start_upload(live)
    refused = await (await live.connect()).ask(_head(live))
    assert (refused.status, refused.json) == (503, {"error": "Too many uploads at once"})
    assert refused.headers["retry-after"] == "10"
    assert (await places[0].ask(BODY)).status == 400
    assert await _gets_continue(waiting)


async def test_a_wait_that_takes_too_long_is_503_and_takes_no_slot(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_slots, "MAX_WAIT_S", 0.05)
    places = await _take_all_slots(live)
    assert (await (await live.connect()).ask(_head(live))).status == 503
    assert (await places[0].ask(BODY)).status == 400
    assert await _gets_continue(await _start_upload(live))


async def test_work_that_continues_after_its_request_keeps_its_slot(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off, decode = threading.Event(), decoder.decode

    def late(content: bytes, max_seconds: int) -> Any:
        cut_off.wait(30)
        return decode(content, max_seconds)

    monkeypatch.setattr(decoder, "decode", late)
    content = "AAAA" * (LARGE // 4)
    body = (
        f'{{"name": "a", "filename": "a", "mimeType": "audio/wav", "fileBase64": "{content}", '
        f'"fileSize": {len(content) // 4 * 3}}}'
    ).encode()
    first = (await _take_all_slots(live, length=len(body)))[0]
    late_one = await _start_upload(live)
    try:
        assert (await first.ask(body)).status == 503
        continued = asyncio.create_task(_gets_continue(late_one))
        assert (await (await live.connect()).ask(live.head("GET", "/v1/agents"))).status == 200
        assert not continued.done()
    finally:
        cut_off.set()
    assert await continued


async def test_an_organization_with_all_its_slots_does_not_delay_another(live: Live) -> None:
    await _take_all_slots(live)
    late = await _start_upload(live)
    continued = asyncio.create_task(_gets_continue(late))
    other = await live.connect()
    another = await live.api.as_another_organization()
    head = _head(live).replace(live.api.key.encode(), another.key.encode())
    await other.send(head)
    async with asyncio.timeout(5):
        assert await _gets_continue(other)
    assert not continued.done()
    continued.cancel()


async def test_sounds_of_one_organization_leave_a_decode_slot_to_another(serve: Serve) -> None:
    live = await serve()
    places, hog = sound_decoding._DECODE_SLOTS, live.api.organization_id
    taken = [asyncio.create_task(places.acquire(hog)) for _ in range(100)]
    await asyncio.sleep(0)
    other = await live.api.as_another_organization()
    behind = asyncio.create_task(live.api("POST", "/background-sounds", upload(b"no sound")))
    async with asyncio.timeout(5):
        while places.waiter_count(hog) < 99:  # noqa: ASYNC110 - no event reports it
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
