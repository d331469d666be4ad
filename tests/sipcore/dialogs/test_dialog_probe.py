"""OPTIONS within a call: asks the peer whether it still has the dialog, and leaves the call as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.sipcore.live_call import LiveCall, assert_audio_flows, place_call
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_stream_phone import StreamPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def acknowledged_call(phone: Phone, raw: RawPhone) -> LiveCall:
    """A call whose ACK has been processed: before, there is no answered call to ask about."""
    call = await LiveCall.make(phone, raw)
    await asyncio.wait_for(call.leg._state.acknowledged, 5)
    return call


@pytest.mark.parametrize("status", ["200 OK", "481 Call/Transaction Does Not Exist", "408 Request Timeout"])
async def test_the_call_goes_on_whatever_the_answer(phone: Phone, raw: RawPhone, status: str) -> None:
    call = await acknowledged_call(phone, raw)
    answer = await call.leg.probe()
    request = await raw.next_request("OPTIONS")
    assert request.header("Call-ID") == call.dialog.call_id
    assert f"tag={call.dialog.tag}" in request.header("To")
    raw.reply(request, status)
    assert await asyncio.wait_for(answer, 5) == int(status.split()[0])
    await assert_audio_flows(phone, raw, call.media)
    assert not call.leg.ended.done()
    await call.leg.hangup()
    bye = await raw.next_request("BYE")
    assert int(bye.header("CSeq").split()[0]) == int(request.header("CSeq").split()[0]) + 1
    raw.reply(bye, "200 OK")
    call.leg.release()


async def test_it_is_repeated_without_an_answer(phone: Phone, raw: RawPhone) -> None:
    call = await acknowledged_call(phone, raw)
    answer = await call.leg.probe()
    requests = [await raw.next_request("OPTIONS") for _ in range(3)]
    assert len({each.text for each in requests}) == 1
    assert not answer.done()
    await call.end()
    raw.reply(requests[0], "481 Call/Transaction Does Not Exist")
    assert await asyncio.wait_for(answer, 5) == 481


async def test_it_is_repeated_after_the_end_of_the_call(phone: Phone, raw: RawPhone) -> None:
    call = await acknowledged_call(phone, raw)
    answer = await call.leg.probe()
    request = await raw.next_request("OPTIONS")
    await call.leg.hangup()
    raw.reply(await raw.next_request("BYE"), "200 OK")
    call.leg.release()
    ended_s = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < ended_s + 6.0:  # the transaction of the BYE has kept the dialog for 5 s
        assert (await raw.next_message(15)).text == request.text
    raw.reply(request, "200 OK")
    assert await asyncio.wait_for(answer, 5) == 200


async def test_a_closed_connection_is_no_answer(phone: Phone) -> None:
    async with StreamPhone(phone.target) as raw:
        leg, callee = await place_call(phone, raw, ";transport=tcp")
        callee.answer()
        await asyncio.wait_for(leg.wait_connected(), 5)
        await callee.next_request("ACK")
    answer = await leg.probe()
    assert await asyncio.wait_for(answer, 10) == 0
    assert not leg.ended.done()
    await leg.hangup()
    await asyncio.wait_for(leg.ended, 10)
    leg.release()


async def test_only_an_answered_call_has_a_dialog_to_ask_about(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    with pytest.raises(ConnectionError):
        await leg.probe()
    callee.reject("486 Busy Here")
    await asyncio.wait_for(leg.ended, 5)
    with pytest.raises(ConnectionError):
        await leg.probe()
