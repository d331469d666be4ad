"""An outbound INVITE that a proxy forks to several phones (RFC 3261 13.2.2.4)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import assert_audio_flows, place_call, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def requests(raw: RawPhone, count: int) -> dict[tuple[str, str], Message]:
    """That many different requests, by method and the tag of their phone; a BYE is answered."""
    found: dict[tuple[str, str], Message] = {}
    while len(found) < count:
        message = await raw.next_message()
        found[message.first_line.split()[0], message.header("To").partition("tag=")[2]] = message
        if message.first_line.startswith("BYE "):
            raw.reply(message, "200 OK")
    return found


async def test_second_of_two_forked_answers_gets_bye(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    connecting = asyncio.create_task(leg.wait_connected())
    callee.answer(raw.offer("0"), tag="first")
    callee.answer(raw.offer("0"), tag="second")
    found = await requests(raw, 3)
    assert set(found) == {("ACK", "first"), ("ACK", "second"), ("BYE", "second")}
    media = await asyncio.wait_for(connecting, 5)
    assert not leg.ended.done()
    await assert_audio_flows(phone, raw, media)
    callee.dialog.tag = "first"
    await callee.hang_up()
    await wait_ended(leg)


async def test_late_second_forked_answer_gets_bye(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    callee.answer(raw.offer("0"), tag="first")
    await callee.next_request("ACK")
    await asyncio.wait_for(leg.wait_connected(), 5)
    callee.answer(raw.offer("0"), tag="second")
    assert set(await requests(raw, 2)) == {("ACK", "second"), ("BYE", "second")}
    callee.answer(raw.offer("0"), tag="first")
    assert set(await requests(raw, 1)) == {("ACK", "first")}, "the answer that counts, once more"
    callee.dialog.tag = "first"
    await callee.hang_up()
    await wait_ended(leg)


async def test_last_of_several_ringing_forks_answers(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    connecting = asyncio.create_task(leg.wait_connected())
    for tag in ("one", "two", "three"):
        callee.ring(tag=tag)
    await asyncio.wait_for(leg.ringing, 5)
    callee.answer(raw.offer("0"), tag="three")
    ack = await callee.next_request("ACK")
    assert ack.header("To").endswith("tag=three")
    await assert_audio_flows(phone, raw, await asyncio.wait_for(connecting, 5))
    callee.dialog.tag = "three"
    await callee.hang_up()
    await wait_ended(leg)


async def test_answer_of_another_fork_replaces_early_media(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    connecting = asyncio.create_task(leg.wait_connected())
    async with RawPhone(phone.target) as announcer:
        callee.ring(announcer.offer("0"), "183 Session Progress", tag="announcer")
        await asyncio.wait_for(leg.ringing, 5)
        await announcer.next_rtp()
        callee.answer(raw.offer("0"), tag="person")
        assert (await callee.next_request("ACK")).header("To").endswith("tag=person")
        await assert_audio_flows(phone, raw, await asyncio.wait_for(connecting, 5))
    callee.dialog.tag = "person"
    await callee.hang_up()
    await wait_ended(leg)


async def test_reliable_responses_of_each_fork_get_prack(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    for tag in ("one", "two"):
        callee.ring("", "180 Ringing", "Require: 100rel", "RSeq: 5", tag=tag)
    assert set(await requests(raw, 2)) == {("PRACK", "one"), ("PRACK", "two")}
    callee.reject("486 Busy Here")
    await wait_ended(leg)


async def test_hangup_of_a_forked_invite_sends_one_cancel(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    for tag in ("one", "two"):
        callee.ring(tag=tag)
    await asyncio.wait_for(leg.ringing, 5)
    await leg.hangup()
    await callee.expect_cancel()
    end = await wait_ended(leg)
    assert (end.code, end.by_peer) == (487, False)


async def test_response_without_a_transaction_is_ignored(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 17.1.3: branch and method identify the transaction; the tags identify a retransmitted 200."""
    leg, callee = await place_call(phone, raw)
    for old, new in ((r"branch=z9hG4bK", "branch=z9hG4bKx"), (r"^(CSeq: \d+) INVITE", r"\1 OPTIONS")):
        stray = RawCallee(raw, with_replaced(callee.invite, old, new))
        stray.ring()
        stray.reject("486 Busy Here")
    RawCallee(
        raw, with_replaced(with_replaced(callee.invite, "branch=", "branch=x"), "(From: .*;tag=)", r"\1x")
    ).answer()
    await raw.options()
    assert not leg.ringing.done()
    assert not leg.answered.done()
    callee.reject("603 Decline")
    assert (await wait_ended(leg)).code == 603


def with_replaced(invite: Message, old: str, new: str) -> Message:
    """The message with one part replaced."""
    text, found = re.subn(old, new, invite.text, flags=re.MULTILINE)
    assert found
    return Message(invite.first_line, text, invite.body)
