"""Offers and answers (RFC 3264) after the call is up, late, early, and at the same time from both sides."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, Media
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall, assert_sound_flows, ended, placed
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone
from tests.sipcore.tones import tone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU", "PCMA", "G722"), max_calls=40)
PCMA, G722 = ("8", "rtpmap:8 PCMA/8000"), ("9", "rtpmap:9 G722/8000")
HOLDS = {
    "sendonly": ("a=fmtp", "a=sendonly\r\na=fmtp"),
    "inactive": ("a=fmtp", "a=inactive\r\na=fmtp"),
    "c=0.0.0.0": ("c=IN IP4 127.0.0.1", "c=IN IP4 0.0.0.0"),
}


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


def direction(answer: Message) -> str:
    """Of the answer's sound."""
    found = re.search(r"^a=(sendrecv|sendonly|recvonly|inactive)", answer.body, re.MULTILINE)
    return found[1] if found else "sendrecv"


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
@pytest.mark.parametrize("hold", HOLDS)
async def test_hold_and_resume(phone: Phone, raw: RawPhone, method: str, hold: str) -> None:
    call = await LiveCall.made(phone, raw)
    answer = await call.again(raw.offer("0").replace(*HOLDS[hold]), method)
    assert answer.status == 200
    assert direction(answer) == ({"sendonly": "recvonly", "inactive": "inactive"}.get(hold, "sendrecv"))
    await phone.ears.ticks(2)
    assert call.leg.on_hold
    assert (await call.again(raw.offer("0"), method)).status == 200
    await phone.ears.ticks(2)
    assert not call.leg.on_hold
    await assert_sound_flows(phone, raw, call.media)
    await call.over()


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
async def test_sound_follows_to_another_port_and_to_another_address(phone: Phone, raw: RawPhone, method: str) -> None:
    call = await LiveCall.made(phone, raw)
    for host in ("127.0.0.1", "127.0.0.9"):
        async with RawPhone(phone.target, host) as elsewhere:
            answer = await call.again(elsewhere.offer("0"), method)
            assert answer.status == 200
            port = re.search(r"m=audio (\d+)", answer.body)
            assert port
            elsewhere._rtp_target = ("127.0.0.1", int(port[1]))
            await assert_sound_flows(phone, elsewhere, call.media)
    await call.over()


async def test_the_codec_changes_and_the_sound_goes_on(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    for kind, codec in ((8, PCMA), (9, G722), (0, ("0",))):
        assert (await call.again(raw.offer(*codec))).status == 200
        while (await raw.next_rtp()).kind != kind:
            pass
        phone.pump.write(call.media.slot, tone(8000, 613, 0.4))
        got = [await raw.next_rtp() for _ in range(12)]
        assert {packet.kind for packet in got} == {kind}
        assert len({packet.payload for packet in got}) > 2, "it is no silence"
        assert phone.pump.rate(call.media.slot) == 8000
    await assert_sound_flows(phone, raw, call.media)
    await call.over()


async def test_a_reinvite_without_an_offer_gets_ours(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    call.dialog.cseq += 1
    raw.send(raw.request("INVITE", call.dialog))
    offer = await raw.final("INVITE")
    assert offer.status == 200
    assert "m=audio" in offer.body
    raw.send(raw.request("ACK", call.dialog, body=raw.offer("0")))
    await phone.ears.ticks(3)
    await assert_sound_flows(phone, raw, call.media)
    await call.over()


async def late(phone: Phone, raw: RawPhone) -> tuple[Dialog, Leg, asyncio.Task[Media], Message]:
    """A call without an offer, answered with ours and not acknowledged."""
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog))
    leg = await phone.next_leg()
    answering: asyncio.Task[Media] = asyncio.create_task(leg.answer())
    offer = await raw.final("INVITE")
    dialog.to, dialog.target = offer.header("To"), offer.header("Contact").split("<")[1].split(">")[0]
    port = re.search(r"m=audio (\d+)", offer.body)
    assert port
    raw._rtp_target = ("127.0.0.1", int(port[1]))
    return dialog, leg, answering, offer


async def test_an_invite_without_an_offer_has_sound_once_its_ack_answers_ours(phone: Phone, raw: RawPhone) -> None:
    dialog, leg, answering, offer = await late(phone, raw)
    assert re.search(r"m=audio \d+ RTP/AVP 0 8 9", offer.body), "all that we speak"
    assert not answering.done()
    raw.send(raw.request("ACK", dialog, body=raw.offer("0")))
    media = await asyncio.wait_for(answering, 5)
    await assert_sound_flows(phone, raw, media)
    await raw.bye(dialog)
    await ended(leg)


async def test_a_call_whose_ack_answers_nothing_is_hung_up_on(phone: Phone, raw: RawPhone) -> None:
    dialog, leg, answering, _ = await late(phone, raw)
    raw.send(raw.request("ACK", dialog))
    raw.reply(await raw.asked("BYE"), "200 OK")
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(answering, 5)
    await ended(leg)


async def test_of_several_streams_the_first_sound_is_taken_and_the_others_are_refused(
    phone: Phone, raw: RawPhone
) -> None:
    """RFC 3264 6: an answer has as many streams as the offer, refused ones with port 0."""
    others = (
        "m=video 40000 RTP/AVP 96",
        "a=rtpmap:96 H264/90000",
        "m=audio 40002 RTP/AVP 0",
        "m=image 40004 udptl t38",
    )
    more = "".join(f"{line}\r\n" for line in others)
    call = await LiveCall.made(phone, raw, raw.offer("0") + more)
    ports = [int(port) for port in re.findall(r"^m=\w+ (\d+)", call.answer.body, re.MULTILINE)]
    assert ports[0] > 0
    assert ports[1:] == [0, 0, 0]
    await assert_sound_flows(phone, raw, call.media)
    await call.over()


async def test_an_offer_that_fits_nothing_is_refused_and_the_call_stays_as_it_was(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    for method in ("INVITE", "UPDATE"):
        assert (await call.again(raw.offer("4", "rtpmap:4 G723/8000"), method)).status == 488
    await assert_sound_flows(phone, raw, call.media)
    await call.over()


async def test_an_answer_after_early_media_may_be_another(phone: Phone, raw: RawPhone) -> None:
    """An announcement server first, then the callee elsewhere: 183 without reliability, 200 with other SDP."""
    leg, callee = await placed(phone, raw)
    connecting = asyncio.create_task(leg.connected())
    async with RawPhone(phone.target) as announcer:
        callee.rings(announcer.offer("0"), "183 Session Progress")
        await asyncio.wait_for(leg.ringing, 5)
        await announcer.next_rtp()
        callee.answers(raw.offer("0"))
        await callee.gets("ACK")
        media = await asyncio.wait_for(connecting, 5)
        await assert_sound_flows(phone, raw, media)
    await callee.hangs_up()
    await ended(leg)


async def test_early_media_may_come_with_180_and_the_answer_much_later(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    connecting = asyncio.create_task(leg.connected())
    callee.listens()
    callee.rings(sdp := raw.offer("0"))
    await asyncio.wait_for(leg.ringing, 5)
    await raw.next_rtp()
    for _ in range(3):
        callee.rings(sdp)  # every minute (RFC 3261 13.3.1.1)
    await phone.ears.ticks(40)
    assert not connecting.done()
    callee.answers(sdp)
    await callee.gets("ACK")
    await assert_sound_flows(phone, raw, await asyncio.wait_for(connecting, 5))
    await callee.hangs_up()
    await ended(leg)


async def undecided(phone: Phone, raw: RawPhone) -> tuple[Leg, RawCallee, Message, float]:
    """A call of ours that is answered with two codecs: we settle for one by a re-INVITE, which is returned."""
    leg, callee = await placed(phone, raw)
    callee.answers(raw.offer("0 8", "rtpmap:8 PCMA/8000"))
    await callee.gets("ACK")
    return leg, callee, await callee.gets("INVITE"), time.monotonic()


async def test_what_crosses_a_request_of_the_peer_is_tried_again_after_2_to_4_seconds(
    phone: Phone, raw: RawPhone
) -> None:
    """RFC 3261 14.1: we chose the Call-ID, so we wait longer than the peer does."""
    leg, callee, ours, since = await undecided(phone, raw)
    raw.reply(ours, "491 Request Pending")
    await callee.gets("ACK")
    again = await callee.gets("INVITE")
    assert 2.0 < time.monotonic() - since < 4.8
    assert re.search(r"m=audio \d+ RTP/AVP 0\r", again.body), "one codec"
    raw.reply(again, "200 OK", body=raw.offer("0"))
    await callee.gets("ACK")
    await assert_sound_flows(phone, raw, leg.media)
    await callee.hangs_up()
    await ended(leg)


async def test_a_request_of_the_peer_that_crosses_ours_gets_491(phone: Phone, raw: RawPhone) -> None:
    leg, callee, ours, _ = await undecided(phone, raw)
    for method in ("INVITE", "UPDATE"):
        raw.send(callee.request(method, raw.offer("0", "sendonly")))
        assert (await raw.final(method)).status == 491
    raw.reply(ours, "200 OK", body=raw.offer("0"))
    await callee.gets("ACK")
    assert not leg.on_hold
    await assert_sound_flows(phone, raw, leg.media)
    await callee.hangs_up()
    await ended(leg)
