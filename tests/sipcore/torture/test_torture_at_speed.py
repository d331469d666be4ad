"""10,000 mutated messages, and messages of every wrong size, during a call: its audio stays even."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.rtp.packet_spacing import assert_even_audio, reject_calls
from tests.sipcore.torture.dialog_messages import (
    AT_ONCE,
    HEADERS,
    initial_requests,
    mutate_requests_in_call,
    mutate_responses,
    packets,
)
from tests.sipcore.torture.message_mutator import Mutator

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("opus", "G722", "PCMU"), max_calls=100, max_invites_per_second=0)
MESSAGES = 10_000


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw
    phone.endpoint.log_guard_events()


async def test_mutated_requests_do_not_disturb_audio(phone: Phone, raw: RawPhone) -> None:
    mutate = Mutator(4475)
    source = initial_requests(raw)
    async with assert_even_audio(phone), reject_calls(phone):
        for _ in range(MESSAGES // 2 // AT_ONCE):
            for _ in range(AT_ONCE):
                raw.send(mutate(next(source)))
            await raw.wait_processed()
    await raw.wait_processed()


async def test_mutated_requests_within_a_call_at_most_end_it(phone: Phone, raw: RawPhone) -> None:
    mutate = Mutator(3261)
    async with assert_even_audio(phone):
        for _ in range(MESSAGES // 4 // AT_ONCE):
            await mutate_requests_in_call(phone, raw, mutate)
    await raw.wait_processed()


async def test_mutated_responses_at_most_end_the_outbound_call(phone: Phone, raw: RawPhone) -> None:
    mutate = Mutator(6337)
    async with assert_even_audio(phone):
        for _ in range(MESSAGES // 4 // AT_ONCE):
            await mutate_responses(phone, raw, mutate)
    await raw.wait_processed()


async def test_mutated_rtp_and_rtcp_do_not_end_a_call(phone: Phone, raw: RawPhone) -> None:
    mutate = Mutator(3550)
    call = await LiveCall.make(phone, raw)
    assert raw._rtp_target is not None
    host, port = raw._rtp_target
    async with assert_even_audio(phone):
        for number, (rtp, rtcp) in zip(range(2000), packets(), strict=False):
            raw.rtp.transport.sendto(mutate(rtcp), (host, port + 1))
            raw.rtp.transport.sendto(mutate(rtp), (host, port))
            if number % AT_ONCE == 0:
                await raw.wait_processed()
    assert not call.leg.ended.done()
    await call.end()


EXCESSES = {
    "64 KB of nothing": b"\0" * 65000,
    "64 KB of one header": b"OPTIONS sip:100@h SIP/2.0\r\nX: " + b"y" * 64900,
    "10,000 headers": b"OPTIONS sip:100@h SIP/2.0\r\n" + b"X: y\r\n" * 10000,
    "10,000 parameters": b"OPTIONS sip:100@h SIP/2.0\r\nVia: SIP/2.0/UDP h" + b";a=b" * 10000,
    "10,000 brackets": b"OPTIONS sip:100@h SIP/2.0\r\nTo: " + b"<" * 10000,
    "an endless quotation": b'OPTIONS sip:100@h SIP/2.0\r\nTo: "' + b"\\" * 60000,
}


@pytest.mark.parametrize("what", EXCESSES)
async def test_datagrams_of_every_size_are_handled(phone: Phone, raw: RawPhone, what: str) -> None:
    for _ in range(20):
        raw.send(EXCESSES[what])
        await raw.wait_processed()


@pytest.mark.parametrize("line", ["m=audio 9 RTP/AVP 0", "a=x", "c=IN IP4 127.0.0.1", "a=rtpmap:0 PCMU/8000", "b=AS:1"])
@pytest.mark.parametrize("count", [100, 300, 1000])
async def test_offers_of_every_length_are_handled(phone: Phone, raw: RawPhone, line: str, count: int) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0") + f"{line}\r\n" * count)
    await raw.wait_processed()
    await asyncio.sleep(0)
    while not phone.incoming.empty():
        await phone.incoming.get_nowait().reject(486)


NOT_TEXT = [b"\0", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\x1b[2J", b"\x7f", b"\xe2\x80\xae"]


@pytest.mark.parametrize("odd", NOT_TEXT)
async def test_invalid_utf8_in_every_header_is_handled(phone: Phone, raw: RawPhone, odd: bytes) -> None:
    request = raw.request("INVITE", raw.dialog(), body=raw.offer("0"), headers=HEADERS)
    async with reject_calls(phone):
        for at in range(0, len(request), 7):
            fresh = raw.request("INVITE", raw.dialog(), body=raw.offer("0"), headers=HEADERS)
            raw.send(fresh[:at] + odd + fresh[at:])
            if at % 210 == 0:
                await raw.wait_processed()
        await raw.wait_processed()
