"""Attended transfers of PBXs: an INVITE with Replaces (RFC 3891) replaces the peer of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, Media
from sipcore.endpoint import EndpointSettings
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


async def establish_call(phone: Phone, raw: RawPhone, sdp: str) -> tuple[Dialog, Leg, Media]:
    """An answered call from the raw phone."""
    dialog = raw.dialog()
    raw.invite(dialog, sdp)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    return dialog, leg, await answering


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


async def end_call(raw: RawPhone, dialog: Dialog, leg: Leg) -> None:
    """Hang up from the raw phone."""
    await raw.bye(dialog)
    assert (await asyncio.wait_for(leg.ended, 5)).by_peer
    leg.release()


async def assert_audio_both_ways(phone: Phone, raw: RawPhone, media: Media) -> None:
    """Tones in both directions, through the first slot of the leg."""
    track = phone.audio.follow(media.slot)
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    phone.pump.write(media.slot, tone(media.rate, 800, 0.4))
    sound = tone(8000, 440, 0.4)
    heard = []
    for number, at in enumerate(range(0, len(sound), 160)):
        raw.send_rtp(Rtp(0, number, at, mulaw(sound[at : at + 160]), number == 0))
        heard.append(await raw.next_rtp())
        phone.audio.read()
    assert {packet.kind for packet in heard} == {0}
    assert loudest_hz(from_mulaw(b"".join(each.payload for each in heard)), 8000) == pytest.approx(800, abs=10)
    assert loudest_hz(track.received, media.rate) == pytest.approx(440, abs=10)


@pytest.mark.parametrize("first", ["0", "9"])
async def test_replaces_connects_the_leg_to_the_new_dialog(
    phone: Phone, raw: RawPhone, replacing: RawPhone, first: str
) -> None:
    old, leg, media = await establish_call(phone, raw, raw.offer(first))
    new = await send_replaces(replacing, old, replacing.offer("0"))
    await expect_bye(raw, old)
    await assert_audio_both_ways(phone, replacing, media)
    assert not leg.ended.done()
    assert phone.endpoint.live_legs == 1
    await end_call(replacing, new, leg)
    assert phone.endpoint.live_legs == 0
    with pytest.raises(KeyError):
        phone.pump.rate(media.slot)


async def test_dialog_can_be_replaced_twice_and_hangup_ends_the_last(
    phone: Phone, raw: RawPhone, replacing: RawPhone
) -> None:
    old, leg, media = await establish_call(phone, raw, raw.offer("0"))
    new = await send_replaces(replacing, old, replacing.offer("0"))
    await expect_bye(raw, old)
    last = await send_replaces(raw, new, raw.offer("0"))
    await expect_bye(replacing, new)
    await assert_audio_both_ways(phone, raw, media)
    await leg.hangup()
    await expect_bye(raw, last)
    assert not (await asyncio.wait_for(leg.ended, 5)).by_peer
    leg.release()


async def test_replaces_resumes_a_held_leg(phone: Phone, raw: RawPhone, replacing: RawPhone) -> None:
    old, leg, _ = await establish_call(phone, raw, raw.offer("0"))
    held: asyncio.Queue[bool] = asyncio.Queue()
    leg.on_hold_change = held.put_nowait
    old.cseq += 1
    raw.send(raw.request("INVITE", old, body=raw.offer("0", "sendonly")))
    await raw.complete_invite(old)
    assert await asyncio.wait_for(held.get(), 5)
    new = await send_replaces(replacing, old, replacing.offer("0"))
    assert not await asyncio.wait_for(held.get(), 5)
    await end_call(replacing, new, leg)


async def test_replaces_without_an_offer_gets_ours(phone: Phone, raw: RawPhone, replacing: RawPhone) -> None:
    old, leg, media = await establish_call(phone, raw, raw.offer("0"))
    new = replacing.dialog()
    replacing.invite(new, "", headers=replaces_of(old))
    answer = await replacing.final_response("INVITE")
    assert (answer.status, "m=audio" in answer.body) == (200, True)
    new.update_target(answer)
    replacing._rtp_target = ("127.0.0.1", int(answer.body.split("m=audio ")[1].split()[0]))
    replacing.send(replacing.request("ACK", new, body=replacing.offer("0")))
    await expect_bye(raw, old)
    await replacing.next_rtp()
    await assert_audio_both_ways(phone, replacing, media)
    await end_call(replacing, new, leg)


async def test_replaces_of_an_unknown_dialog_gets_481(phone: Phone, raw: RawPhone, replacing: RawPhone) -> None:
    old, leg, _ = await establish_call(phone, raw, raw.offer("0"))
    call_id, ours, theirs = old.call_id, old.to.split("tag=")[1], old.tag
    for wrong in ((f"x{call_id}", ours, theirs), (call_id, f"{ours}x", theirs), (call_id, ours, f"{theirs}x")):
        replacing.invite(replacing.dialog(), replacing.offer("0"), headers=replaces(*wrong))
        assert (await replacing.final_response("INVITE")).status == 481
    assert phone.incoming.empty()
    await end_call(raw, old, leg)


async def test_replaces_from_another_trunk_gets_403(phone: Phone, raw: RawPhone) -> None:
    old, leg, media = await establish_call(phone, raw, raw.offer("0"))
    phone.endpoint.set_sources(["127.0.0.1", "127.0.0.3"])
    async with RawPhone(phone.target, "127.0.0.3") as thief:
        thief.invite(thief.dialog(), thief.offer("0"), headers=replaces_of(old))
        assert (await thief.final_response("INVITE")).status == 403
    phone.endpoint.set_sources(["127.0.0.1"])
    await assert_audio_both_ways(phone, raw, media)
    await end_call(raw, old, leg)


async def test_replaces_from_an_address_of_the_same_trunk_is_accepted(phone: Phone, raw: RawPhone) -> None:
    old, leg, _ = await establish_call(phone, raw, raw.offer("0"))
    phone.endpoint.set_sources(["127.0.0.1", "127.0.0.3"])
    leg.may_be_replaced_by = {"127.0.0.3"}.__contains__
    async with RawPhone(phone.target, "127.0.0.3") as replacing:
        new = await send_replaces(replacing, old, replacing.offer("0"))
        await end_call(replacing, new, leg)
    phone.endpoint.set_sources(["127.0.0.1"])


async def test_replaces_without_a_common_codec_fails_and_can_be_repeated(
    phone: Phone, raw: RawPhone, replacing: RawPhone
) -> None:
    old, leg, media = await establish_call(phone, raw, raw.offer("0"))
    replacing.invite(replacing.dialog(), replacing.offer("4", "rtpmap:4 G723/8000"), headers=replaces_of(old))
    assert (await replacing.final_response("INVITE")).status == 488
    await assert_audio_both_ways(phone, raw, media)
    new = await send_replaces(replacing, old, replacing.offer("0"))
    await assert_audio_both_ways(phone, replacing, media)
    await end_call(replacing, new, leg)


async def test_replaces_is_accepted_while_new_calls_get_503(phone: Phone, raw: RawPhone, replacing: RawPhone) -> None:
    old, leg, _ = await establish_call(phone, raw, raw.offer("0"))
    phone.endpoint.set_accepting(False)
    replacing.invite(replacing.dialog(), replacing.offer("0"))
    assert (await replacing.final_response("INVITE")).status == 503
    new = await send_replaces(replacing, old, replacing.offer("0"))
    phone.endpoint.set_accepting(True)
    await end_call(replacing, new, leg)


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
        await end_call(replacing, new, leg)
