"""A CSeq number is below 2^31 (RFC 3261 8.1.1.5): a request with another one gets 400 and has no effect."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.sipcore.live_call import LiveCall, assert_audio_flows
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.security.test_source_guard import UNKNOWN_SOURCE, guard_log_lines

pytestmark = pytest.mark.asyncio(loop_scope="module")
METHODS = ("INVITE", "OPTIONS", "BYE", "CANCEL", "UPDATE", "INFO", "REFER", "NOTIFY", "PRACK", "REGISTER", "FOO")
NUMBERS = ("2147483648", "4294967295", "4294967297", "36893488147419103232")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw


def numbered(request: bytes, number: str) -> bytes:
    """The request with that CSeq number."""
    changed, count = re.subn(rb"CSeq: \d+", b"CSeq: " + number.encode(), request)
    assert count == 1
    return changed


@pytest.mark.parametrize("number", NUMBERS)
async def test_out_of_range_cseq_gets_400_outside_of_a_call(phone: Phone, raw: RawPhone, number: str) -> None:
    for method in METHODS:
        raw.send(numbered(raw.request(method, raw.dialog(), body=raw.offer("0")), number))
        answer = await raw.final_response()
        assert (answer.status, answer.header("CSeq")) == (400, f"{number} {method}")
    raw.send(numbered(raw.request("ACK", raw.dialog()), number))
    assert (await raw.options()).status == 200
    assert raw.sip.received.empty()
    assert phone.incoming.empty()
    assert guard_log_lines(phone) == [("sip.garbage", "127.0.0.1", len(METHODS) + 1)]


async def test_out_of_range_cseq_gets_400_within_a_call_which_continues(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    for method in METHODS:
        raw.send(numbered(raw.request(method, replace(call.dialog)), NUMBERS[0]))
        answer = await raw.final_response()
        assert (answer.status, answer.header("CSeq")) == (400, f"{NUMBERS[0]} {method}")
    raw.send(numbered(raw.request("ACK", call.dialog), NUMBERS[0]))
    await assert_audio_flows(phone, raw, call.media)
    assert raw.sip.received.empty()
    await call.end()
    guard_log_lines(phone)


async def test_highest_valid_cseq_is_accepted(phone: Phone, raw: RawPhone) -> None:
    raw.send(numbered(raw.request("OPTIONS", raw.dialog()), "2147483647"))
    answer = await raw.final_response("OPTIONS")
    assert (answer.status, answer.header("CSeq")) == (200, "2147483647 OPTIONS")


async def test_folded_cseq_is_read(phone: Phone, raw: RawPhone) -> None:
    request = numbered(raw.request("OPTIONS", raw.dialog()), NUMBERS[0])
    raw.send(request.replace(b"CSeq: 2147483648 OPTIONS", b"cseq :\r\n 2147483648\r\n\tOPTIONS"))
    answer = await raw.final_response()
    assert (answer.status, answer.header("CSeq")) == (400, "2147483648 OPTIONS")
    guard_log_lines(phone)


async def test_unknown_source_gets_no_400(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target, UNKNOWN_SOURCE) as unknown_source:
        unknown_source.send(numbered(unknown_source.request("OPTIONS", unknown_source.dialog()), NUMBERS[0]))
        await raw.wait_processed()
        assert unknown_source.sip.received.empty()
    assert guard_log_lines(phone) == [("sip.garbage", UNKNOWN_SOURCE, 1)]
