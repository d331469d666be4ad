"""Our INVITE reaches several phones at once, behind a proxy that forks it (RFC 3261 13.2.2.4)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import assert_sound_flows, ended, placed
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
    """That many different requests, by method and the tag of the phone that they are for; a BYE is answered."""
    found: dict[tuple[str, str], Message] = {}
    while len(found) < count:
        message = await raw.message()
        found[message.first_line.split()[0], message.header("To").partition("tag=")[2]] = message
        if message.first_line.startswith("BYE "):
            raw.reply(message, "200 OK")
    return found


async def test_of_two_phones_that_answer_one_is_talked_to_and_one_is_hung_up_on(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    connecting = asyncio.create_task(leg.connected())
    callee.answers(raw.offer("0"), tag="first")
    callee.answers(raw.offer("0"), tag="second")
    found = await requests(raw, 3)
    assert set(found) == {("ACK", "first"), ("ACK", "second"), ("BYE", "second")}
    media = await asyncio.wait_for(connecting, 5)
    assert not leg.ended.done()
    await assert_sound_flows(phone, raw, media)
    callee.dialog.tag = "first"
    await callee.hangs_up()
    await ended(leg)


async def test_a_second_answer_after_the_first_was_acknowledged_is_hung_up_on(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    callee.answers(raw.offer("0"), tag="first")
    await callee.gets("ACK")
    await asyncio.wait_for(leg.connected(), 5)
    callee.answers(raw.offer("0"), tag="second")
    assert set(await requests(raw, 2)) == {("ACK", "second"), ("BYE", "second")}
    callee.answers(raw.offer("0"), tag="first")
    assert set(await requests(raw, 1)) == {("ACK", "first")}, "the answer that counts, once more"
    callee.dialog.tag = "first"
    await callee.hangs_up()
    await ended(leg)


async def test_several_phones_ring_and_the_last_one_answers(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    connecting = asyncio.create_task(leg.connected())
    for tag in ("one", "two", "three"):
        callee.rings(tag=tag)
    await asyncio.wait_for(leg.ringing, 5)
    callee.answers(raw.offer("0"), tag="three")
    ack = await callee.gets("ACK")
    assert ack.header("To").endswith("tag=three")
    await assert_sound_flows(phone, raw, await asyncio.wait_for(connecting, 5))
    callee.dialog.tag = "three"
    await callee.hangs_up()
    await ended(leg)


async def test_early_media_of_one_phone_gives_way_to_the_answer_of_another(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    connecting = asyncio.create_task(leg.connected())
    async with RawPhone(phone.target) as announcer:
        callee.rings(announcer.offer("0"), "183 Session Progress", tag="announcer")
        await asyncio.wait_for(leg.ringing, 5)
        await announcer.next_rtp()
        callee.answers(raw.offer("0"), tag="person")
        assert (await callee.gets("ACK")).header("To").endswith("tag=person")
        await assert_sound_flows(phone, raw, await asyncio.wait_for(connecting, 5))
    callee.dialog.tag = "person"
    await callee.hangs_up()
    await ended(leg)


async def test_reliable_responses_of_several_phones_are_each_acknowledged(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    for tag in ("one", "two"):
        callee.rings("", "180 Ringing", "Require: 100rel", "RSeq: 5", tag=tag)
    assert set(await requests(raw, 2)) == {("PRACK", "one"), ("PRACK", "two")}
    callee.refuses("486 Busy Here")
    await ended(leg)


async def test_hanging_up_while_several_phones_ring_cancels_once(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    for tag in ("one", "two"):
        callee.rings(tag=tag)
    await asyncio.wait_for(leg.ringing, 5)
    await leg.hangup()
    await callee.is_cancelled()
    end = await ended(leg)
    assert (end.code, end.by_peer) == (487, False)


async def test_a_response_that_belongs_to_nothing_is_passed_over(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 17.1.3: the branch and the method say what it answers; a 200 that comes again, the tags."""
    leg, callee = await placed(phone, raw)
    for old, new in ((r"branch=z9hG4bK", "branch=z9hG4bKx"), (r"^(CSeq: \d+) INVITE", r"\1 OPTIONS")):
        stray = RawCallee(raw, respelled(callee.invite, old, new))
        stray.rings()
        stray.refuses("486 Busy Here")
    RawCallee(raw, respelled(respelled(callee.invite, "branch=", "branch=x"), "(From: .*;tag=)", r"\1x")).answers()
    await raw.options()
    assert not leg.ringing.done()
    assert not leg.answered.done()
    callee.refuses("603 Decline")
    assert (await ended(leg)).code == 603


def respelled(invite: Message, old: str, new: str) -> Message:
    """With one part replaced."""
    text, found = re.subn(old, new, invite.text, flags=re.MULTILINE)
    assert found
    return Message(invite.first_line, text, invite.body)
