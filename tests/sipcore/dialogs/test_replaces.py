"""Attended transfers of PBXs: an INVITE with Replaces (RFC 3891) replaces the peer of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Media
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall, end_call
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, RawPhone, Rtp
from tests.sipcore.tones import from_mulaw, loudest_hz, mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("G722", "PCMU"), max_calls=20)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """The first caller."""
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def replacing(phone: Phone) -> AsyncIterator[RawPhone]:
    """The phone that replaces it."""
    async with RawPhone(phone.target) as replacing:
        yield replacing


def replaces(call_id: str, ours: str, theirs: str) -> tuple[str, str]:
    """The headers of an INVITE that replaces a dialog, with our tag and the peer's."""
    return f"Replaces: {call_id};to-tag={ours};from-tag={theirs}", "Require: replaces"


def replaces_of(dialog: Dialog) -> tuple[str, str]:
    """The same for an inbound call's dialog."""
    return replaces(dialog.call_id, dialog.to.split("tag=")[1], dialog.tag)


async def send_replaces(replacing: RawPhone, old: Dialog, sdp: str) -> Dialog:
    """Replace the peer by the replacing phone; returns the new dialog."""
    new = replacing.dialog()
    replacing.invite(new, sdp, headers=replaces_of(old))
    await replacing.complete_invite(new)
    return new


async def expect_bye(raw: RawPhone, dialog: Dialog) -> None:
    """The first caller receives a BYE."""
    while not (bye := await raw.next_message()).first_line.startswith("BYE"):
        pass
    assert bye.header("Call-ID") == dialog.call_id
    lines = [
        "SIP/2.0 200 OK",
        *(line for name in ("Via", "From", "To", "Call-ID", "CSeq") for line in bye.headers(name)),
    ]
    raw.send(("\r\n".join([*lines, "Content-Length: 0"]) + "\r\n\r\n").encode())


async def assert_audio_both_ways(phone: Phone, raw: RawPhone, media: Media) -> None:
    """Tones in both directions, through the first slot of the leg."""
    track = phone.audio.follow(media.slot)
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    phone.pump.write(media.slot, tone(media.rate, 800, 0.4))
    sound = tone(8000, 440, 0.4)
    packets = []
    for number, at in enumerate(range(0, len(sound), 160)):
        raw.send_rtp(Rtp(0, number, at, mulaw(sound[at : at + 160]), number == 0))
        packets.append(await raw.next_rtp())
        phone.audio.read()
    assert {packet.kind for packet in packets} == {0}
    assert loudest_hz(from_mulaw(b"".join(each.payload for each in packets)), 8000) == pytest.approx(800, abs=10)
    assert loudest_hz(track.received, media.rate) == pytest.approx(440, abs=10)


@pytest.mark.parametrize("first", ["0", "9"])
async def test_replaces_connects_the_leg_to_the_new_dialog(
    phone: Phone, raw: RawPhone, replacing: RawPhone, first: str
) -> None:
    call = await LiveCall.make(phone, raw, raw.offer(first))
    new = await send_replaces(replacing, call.dialog, replacing.offer("0"))
    await expect_bye(raw, call.dialog)
    await assert_audio_both_ways(phone, replacing, call.media)
    assert not call.leg.ended.done()
    assert phone.endpoint.live_legs == 1
    assert (await end_call(replacing, new, call.leg)).by_peer
    assert phone.endpoint.live_legs == 0
    with pytest.raises(KeyError):
        phone.pump.rate(call.media.slot)


async def test_dialog_can_be_replaced_twice_and_hangup_ends_the_last(
    phone: Phone, raw: RawPhone, replacing: RawPhone
) -> None:
    call = await LiveCall.make(phone, raw)
    new = await send_replaces(replacing, call.dialog, replacing.offer("0"))
    await expect_bye(raw, call.dialog)
    last = await send_replaces(raw, new, raw.offer("0"))
    await expect_bye(replacing, new)
    await assert_audio_both_ways(phone, raw, call.media)
    await call.leg.hangup()
    await expect_bye(raw, last)
    assert not (await asyncio.wait_for(call.leg.ended, 5)).by_peer
    call.leg.release()


async def test_replaces_resumes_a_held_leg(phone: Phone, raw: RawPhone, replacing: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    held: asyncio.Queue[bool] = asyncio.Queue()
    call.leg.on_hold_change = held.put_nowait
    call.dialog.cseq += 1
    raw.send(raw.request("INVITE", call.dialog, body=raw.offer("0", "sendonly")))
    await raw.complete_invite(call.dialog)
    assert await asyncio.wait_for(held.get(), 5)
    new = await send_replaces(replacing, call.dialog, replacing.offer("0"))
    assert not await asyncio.wait_for(held.get(), 5)
    assert (await end_call(replacing, new, call.leg)).by_peer


async def test_replaces_without_an_offer_gets_ours(phone: Phone, raw: RawPhone, replacing: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    new = replacing.dialog()
    replacing.invite(new, "", headers=replaces_of(call.dialog))
    answer = await replacing.final_response("INVITE")
    assert (answer.status, "m=audio" in answer.body) == (200, True)
    new.update_target(answer)
    replacing._rtp_target = ("127.0.0.1", int(answer.body.split("m=audio ")[1].split()[0]))
    replacing.send(replacing.request("ACK", new, body=replacing.offer("0")))
    await expect_bye(raw, call.dialog)
    await replacing.next_rtp()
    await assert_audio_both_ways(phone, replacing, call.media)
    assert (await end_call(replacing, new, call.leg)).by_peer


async def test_replaces_of_an_unknown_dialog_gets_481(phone: Phone, raw: RawPhone, replacing: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    call_id, ours, theirs = call.dialog.call_id, call.dialog.to.split("tag=")[1], call.dialog.tag
    for wrong in ((f"x{call_id}", ours, theirs), (call_id, f"{ours}x", theirs), (call_id, ours, f"{theirs}x")):
        replacing.invite(replacing.dialog(), replacing.offer("0"), headers=replaces(*wrong))
        assert (await replacing.final_response("INVITE")).status == 481
    assert phone.incoming.empty()
    assert (await call.end()).by_peer


async def test_replaces_from_another_trunk_gets_403(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    phone.endpoint.set_sources(["127.0.0.1", "127.0.0.3"])
    async with RawPhone(phone.target, "127.0.0.3") as thief:
        thief.invite(thief.dialog(), thief.offer("0"), headers=replaces_of(call.dialog))
        assert (await thief.final_response("INVITE")).status == 403
    phone.endpoint.set_sources(["127.0.0.1"])
    await assert_audio_both_ways(phone, raw, call.media)
    assert (await call.end()).by_peer


async def test_replaces_from_an_address_of_the_same_trunk_is_accepted(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    phone.endpoint.set_sources(["127.0.0.1", "127.0.0.3"])
    call.leg.may_be_replaced_by = {"127.0.0.3"}.__contains__
    async with RawPhone(phone.target, "127.0.0.3") as replacing:
        new = await send_replaces(replacing, call.dialog, replacing.offer("0"))
        assert (await end_call(replacing, new, call.leg)).by_peer
    phone.endpoint.set_sources(["127.0.0.1"])


async def test_replaces_without_a_common_codec_fails_and_can_be_repeated(
    phone: Phone, raw: RawPhone, replacing: RawPhone
) -> None:
    call = await LiveCall.make(phone, raw)
    replacing.invite(replacing.dialog(), replacing.offer("4", "rtpmap:4 G723/8000"), headers=replaces_of(call.dialog))
    assert (await replacing.final_response("INVITE")).status == 488
    await assert_audio_both_ways(phone, raw, call.media)
    new = await send_replaces(replacing, call.dialog, replacing.offer("0"))
    await assert_audio_both_ways(phone, replacing, call.media)
    assert (await end_call(replacing, new, call.leg)).by_peer


async def test_replaces_is_accepted_while_new_calls_get_503(phone: Phone, raw: RawPhone, replacing: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    phone.endpoint.set_accepting(False)
    replacing.invite(replacing.dialog(), replacing.offer("0"))
    assert (await replacing.final_response("INVITE")).status == 503
    new = await send_replaces(replacing, call.dialog, replacing.offer("0"))
    phone.endpoint.set_accepting(True)
    assert (await end_call(replacing, new, call.leg)).by_peer


async def test_outbound_call_can_be_replaced_even_while_ringing(
    phone: Phone, raw: RawPhone, replacing: RawPhone
) -> None:
    for answered in (True, False):
        leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
        callee = await RawCallee.wait_for_invite(raw)
        callee.ring()
        await asyncio.wait_for(leg.ringing, 5)
        if answered:
            callee.answer()
            await callee.next_request("ACK")
            await asyncio.wait_for(leg.wait_connected(), 5)
        new = replacing.dialog()
        ours = callee.invite.header("From").split("tag=")[1]
        replacing.invite(new, replacing.offer("0"), headers=replaces(leg.sip_call_id, ours, callee.dialog.tag))
        await replacing.complete_invite(new)
        if answered:
            await callee.expect_bye()
        else:
            await callee.expect_cancel()
        media = await asyncio.wait_for(leg.wait_connected(), 5)
        await assert_audio_both_ways(phone, replacing, media)
        assert (await end_call(replacing, new, leg)).by_peer
