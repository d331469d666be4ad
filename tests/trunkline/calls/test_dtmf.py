"""DTMF of callers over SIP with a complete server: each key counts once, however many methods transmit it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.media.dtmf.dtmf_signals import gap, key, sent
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall, calling

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


async def press(call: PhoneCall, digit: str, methods: str) -> None:
    """Press a key for 200 ms. With RFC 4733 events, the first 60 ms of the tone are also in the audio."""
    if "tone" in methods:
        call.say(sent(key(digit, ms=60 if "events" in methods else 200), gap(20)))
    if "events" in methods:
        call.press(digit)
    call.say(sent(gap(60)))
    await call.has_said()
    if "info" in methods:
        status = await call.phone.info(call.dialog, "dtmf-relay", f"Signal={digit}\r\nDuration=200\r\n".encode())
        assert status == 200


@pytest.mark.parametrize(
    "methods", ["tone", "events", "info", "tone events", "tone info", "events info", "tone events info"]
)
async def test_each_key_counts_once_with_any_combination_of_methods(local_server: LocalServer, methods: str) -> None:
    number = await local_server.number_with_agent("Thank you. END", firstSpeaker="user")
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        await call.hears(25)
        for digit in "4221#":
            await press(call, digit, methods)
        await call.hung_up()
    found = await local_server.ended(call_id)
    assert [(item["role"], item["content"]) for item in found["transcript"]] == [
        ("user", "4221"),
        ("assistant", "Thank you."),
    ]


async def test_digits_of_a_caller_who_hangs_up_at_once_are_in_the_transcript(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Thank you. END", firstSpeaker="user")
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        await call.hears(25)
        call.press("4711")
        await call.has_said()
        await call.hears(5)
        await call.hang_up()
    found = await local_server.ended(call_id)
    assert [(item["role"], item["content"]) for item in found["transcript"]] == [("user", "4711")]
