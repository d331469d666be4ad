"""Offers and answers (RFC 3264) in an established call: late, early, and crossing."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, Media
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall, assert_audio_flows, place_call, wait_ended
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
    """The direction of the answer's audio."""
    found = re.search(r"^a=(sendrecv|sendonly|recvonly|inactive)", answer.body, re.MULTILINE)
    return found[1] if found else "sendrecv"


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
@pytest.mark.parametrize("hold", HOLDS)
async def test_hold_and_resume(phone: Phone, raw: RawPhone, method: str, hold: str) -> None:
    call = await LiveCall.make(phone, raw)
    answer = await call.send_offer(raw.offer("0").replace(*HOLDS[hold]), method)
    assert answer.status == 200
    assert direction(answer) == ({"sendonly": "recvonly", "inactive": "inactive"}.get(hold, "sendrecv"))
    await phone.audio.ticks(2)
    held = call.leg.on_hold
    assert (await call.send_offer(raw.offer("0"), method)).status == 200
    await phone.audio.ticks(2)
    assert (held, call.leg.on_hold) == (True, False)
    await assert_audio_flows(phone, raw, call.media)
    await call.end()


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
async def test_reinvite_moves_audio_to_another_port_and_address(phone: Phone, raw: RawPhone, method: str) -> None:
    call = await LiveCall.make(phone, raw)
    for host in ("127.0.0.1", "127.0.0.9"):
        async with RawPhone(phone.target, host) as elsewhere:
            answer = await call.send_offer(elsewhere.offer("0"), method)
            assert answer.status == 200
            port = re.search(r"m=audio (\d+)", answer.body)
            assert port
            elsewhere._rtp_target = ("127.0.0.1", int(port[1]))
            await assert_audio_flows(phone, elsewhere, call.media)
    await call.end()


async def test_reinvite_changes_the_codec_and_audio_continues(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    for kind, codec in ((8, PCMA), (9, G722), (0, ("0",))):
        assert (await call.send_offer(raw.offer(*codec))).status == 200
        while (await raw.next_rtp()).kind != kind:
            pass
        phone.pump.write(call.media.slot, tone(8000, 613, 0.4))
        got = [await raw.next_rtp() for _ in range(12)]
        assert {packet.kind for packet in got} == {kind}
        assert len({packet.payload for packet in got}) > 2, "it is no silence"
        assert phone.pump.rate(call.media.slot) == 8000
    await assert_audio_flows(phone, raw, call.media)
    await call.end()


async def test_reinvite_without_an_offer_gets_ours(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    call.dialog.cseq += 1
    raw.send(raw.request("INVITE", call.dialog))
    offer = await raw.final_response("INVITE")
    assert offer.status == 200
    assert "m=audio" in offer.body
    raw.send(raw.request("ACK", call.dialog, body=raw.offer("0")))
    await phone.audio.ticks(3)
    await assert_audio_flows(phone, raw, call.media)
    await call.end()


async def late_offer_call(phone: Phone, raw: RawPhone) -> tuple[Dialog, Leg, asyncio.Task[Media], Message]:
    """A call without an offer, answered with ours and not acknowledged."""
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog))
    leg = await phone.next_leg()
    answering: asyncio.Task[Media] = asyncio.create_task(leg.answer())
    offer = await raw.final_response("INVITE")
    dialog.to, dialog.target = offer.header("To"), offer.header("Contact").split("<")[1].split(">")[0]
    port = re.search(r"m=audio (\d+)", offer.body)
    assert port
    raw._rtp_target = ("127.0.0.1", int(port[1]))
    return dialog, leg, answering, offer


async def test_invite_without_an_offer_has_audio_after_the_answer_in_its_ack(phone: Phone, raw: RawPhone) -> None:
    dialog, leg, answering, offer = await late_offer_call(phone, raw)
    assert re.search(r"m=audio \d+ RTP/AVP 0 8 9", offer.body), "all that we speak"
    assert not answering.done()
    raw.send(raw.request("ACK", dialog, body=raw.offer("0")))
    media = await asyncio.wait_for(answering, 5)
    await assert_audio_flows(phone, raw, media)
    await raw.bye(dialog)
    await wait_ended(leg)


async def test_late_offer_without_an_answer_in_the_ack_ends_with_bye(phone: Phone, raw: RawPhone) -> None:
    dialog, leg, answering, _ = await late_offer_call(phone, raw)
    raw.send(raw.request("ACK", dialog))
    raw.reply(await raw.next_request("BYE"), "200 OK")
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(answering, 5)
    await wait_ended(leg)


async def test_first_audio_stream_is_accepted_and_others_are_rejected(phone: Phone, raw: RawPhone) -> None:
    """RFC 3264 6: an answer has as many streams as the offer, rejected ones with port 0."""
    others = (
        "m=video 40000 RTP/AVP 96",
        "a=rtpmap:96 H264/90000",
        "m=audio 40002 RTP/AVP 0",
        "m=image 40004 udptl t38",
    )
    more = "".join(f"{line}\r\n" for line in others)
    call = await LiveCall.make(phone, raw, raw.offer("0") + more)
    ports = [int(port) for port in re.findall(r"^m=\w+ (\d+)", call.answer.body, re.MULTILINE)]
    assert ports[0] > 0
    assert ports[1:] == [0, 0, 0]
    await assert_audio_flows(phone, raw, call.media)
    await call.end()


async def test_unacceptable_reinvite_gets_488_and_the_call_is_unchanged(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    for method in ("INVITE", "UPDATE"):
        assert (await call.send_offer(raw.offer("4", "rtpmap:4 G723/8000"), method)).status == 488
    await assert_audio_flows(phone, raw, call.media)
    await call.end()


async def test_answer_may_differ_from_the_sdp_of_early_media(phone: Phone, raw: RawPhone) -> None:
    """An announcement server first, then the callee elsewhere: an unreliable 183, and a 200 with other SDP."""
    leg, callee = await place_call(phone, raw)
    connecting = asyncio.create_task(leg.wait_connected())
    async with RawPhone(phone.target) as announcer:
        callee.ring(announcer.offer("0"), "183 Session Progress")
        await asyncio.wait_for(leg.ringing, 5)
        await announcer.next_rtp()
        callee.answer(raw.offer("0"))
        await callee.next_request("ACK")
        media = await asyncio.wait_for(connecting, 5)
        await assert_audio_flows(phone, raw, media)
    await callee.hang_up()
    await wait_ended(leg)


async def test_early_media_may_come_with_180_and_the_answer_much_later(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    connecting = asyncio.create_task(leg.wait_connected())
    callee.learn_rtp_target()
    callee.ring(sdp := raw.offer("0"))
    await asyncio.wait_for(leg.ringing, 5)
    await raw.next_rtp()
    for _ in range(3):
        callee.ring(sdp)  # every minute (RFC 3261 13.3.1.1)
    await phone.audio.ticks(40)
    assert not connecting.done()
    callee.answer(sdp)
    await callee.next_request("ACK")
    await assert_audio_flows(phone, raw, await asyncio.wait_for(connecting, 5))
    await callee.hang_up()
    await wait_ended(leg)


async def call_with_two_codecs(phone: Phone, raw: RawPhone) -> tuple[Leg, RawCallee, Message, float]:
    """An outbound call that is answered with two codecs: we choose one by a re-INVITE, which is returned."""
    leg, callee = await place_call(phone, raw)
    callee.answer(raw.offer("0 8", "rtpmap:8 PCMA/8000"))
    await callee.next_request("ACK")
    return leg, callee, await callee.next_request("INVITE"), time.monotonic()


async def test_request_that_got_491_is_retried_after_2_to_4_seconds(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 14.1: we own the Call-ID, so we wait longer than the peer."""
    leg, callee, ours, since = await call_with_two_codecs(phone, raw)
    raw.reply(ours, "491 Request Pending")
    await callee.next_request("ACK")
    again = await callee.next_request("INVITE")
    assert 2.0 < time.monotonic() - since < 4.8
    assert re.search(r"m=audio \d+ RTP/AVP 0\r", again.body), "one codec"
    raw.reply(again, "200 OK", body=raw.offer("0"))
    await callee.next_request("ACK")
    await assert_audio_flows(phone, raw, leg.media)
    await callee.hang_up()
    await wait_ended(leg)


async def test_crossing_request_of_the_peer_gets_491(phone: Phone, raw: RawPhone) -> None:
    leg, callee, ours, _ = await call_with_two_codecs(phone, raw)
    for method in ("INVITE", "UPDATE"):
        raw.send(callee.request(method, raw.offer("0", "sendonly")))
        assert (await raw.final_response(method)).status == 491
    raw.reply(ours, "200 OK", body=raw.offer("0"))
    await callee.next_request("ACK")
    assert not leg.on_hold
    await assert_audio_flows(phone, raw, leg.media)
    await callee.hang_up()
    await wait_ended(leg)
