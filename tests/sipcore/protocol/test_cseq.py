"""A CSeq number is below 2^31 (RFC 3261 8.1.1.5): with another one nothing is done but to say 400."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.sipcore.live_call import LiveCall, assert_sound_flows
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.security.test_source_guard import STRANGER, guard_lines

pytestmark = pytest.mark.asyncio(loop_scope="module")
METHODS = ("INVITE", "OPTIONS", "BYE", "CANCEL", "UPDATE", "INFO", "REFER", "NOTIFY", "PRACK", "REGISTER", "FOO")
NUMBERS = ("2147483648", "4294967295", "4294967297", "36893488147419103232")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw


def numbered(request: bytes, number: str) -> bytes:
    """The request with that number in its CSeq."""
    changed, count = re.subn(rb"CSeq: \d+", b"CSeq: " + number.encode(), request)
    assert count == 1
    return changed


@pytest.mark.parametrize("number", NUMBERS)
async def test_outside_of_a_call_every_method_gets_400(phone: Phone, raw: RawPhone, number: str) -> None:
    for method in METHODS:
        raw.send(numbered(raw.request(method, raw.dialog(), body=raw.offer("0")), number))
        answer = await raw.final()
        assert (answer.status, answer.header("CSeq")) == (400, f"{number} {method}")
    raw.send(numbered(raw.request("ACK", raw.dialog()), number))
    assert (await raw.options()).status == 200
    assert raw.sip.received.empty()
    assert phone.incoming.empty()
    assert guard_lines(phone) == [("sip.garbage", "127.0.0.1", len(METHODS) + 1)]


async def test_within_a_call_every_method_gets_400_and_the_call_goes_on(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    for method in METHODS:
        raw.send(numbered(raw.request(method, replace(call.dialog)), NUMBERS[0]))
        answer = await raw.final()
        assert (answer.status, answer.header("CSeq")) == (400, f"{NUMBERS[0]} {method}")
    raw.send(numbered(raw.request("ACK", call.dialog), NUMBERS[0]))
    await assert_sound_flows(phone, raw, call.media)
    assert raw.sip.received.empty()
    await call.over()
    guard_lines(phone)


async def test_the_highest_number_is_none_too_many(phone: Phone, raw: RawPhone) -> None:
    raw.send(numbered(raw.request("OPTIONS", raw.dialog()), "2147483647"))
    answer = await raw.final("OPTIONS")
    assert (answer.status, answer.header("CSeq")) == (200, "2147483647 OPTIONS")


async def test_a_folded_line_is_read_too(phone: Phone, raw: RawPhone) -> None:
    request = numbered(raw.request("OPTIONS", raw.dialog()), NUMBERS[0])
    raw.send(request.replace(b"CSeq: 2147483648 OPTIONS", b"cseq :\r\n 2147483648\r\n\tOPTIONS"))
    answer = await raw.final()
    assert (answer.status, answer.header("CSeq")) == (400, "2147483648 OPTIONS")
    guard_lines(phone)


async def test_a_stranger_gets_nothing(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target, STRANGER) as stranger:
        stranger.send(numbered(stranger.request("OPTIONS", stranger.dialog()), NUMBERS[0]))
        await raw.settled()
        assert stranger.sip.received.empty()
    assert guard_lines(phone) == [("sip.garbage", STRANGER, 1)]
