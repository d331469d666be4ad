"""Reliable provisional responses (RFC 3262), as caller and as callee."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import assert_audio_flows, place_call, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def provisional(raw: RawPhone, status: int) -> Message:
    """The next response with that status."""
    while (message := await raw.next_message()).status != status:
        pass
    return message


def prack(raw: RawPhone, dialog: Dialog, response: Message, rack: str | None = None) -> None:
    """Acknowledge a reliable provisional response."""
    early = Dialog(
        dialog.call_id,
        dialog.tag,
        response.header("To"),
        response.header("Contact").split("<")[1].split(">")[0],
        dialog.cseq + 1,
    )
    rack = rack or f"{response.header('RSeq')} {response.header('CSeq')}"
    raw.send(raw.request("PRACK", early, headers=(f"RAck: {rack}",)))
    dialog.cseq += 1


@pytest.mark.parametrize("header", ["Require: 100rel", "Supported: timer, 100rel"])
async def test_caller_with_100rel_gets_reliable_responses(phone: Phone, raw: RawPhone, header: str) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"), (header,))
    leg = await phone.next_leg()
    await leg.send_ringing()
    ringing = await provisional(raw, 180)
    assert "100rel" in ringing.header("Require")
    assert int(ringing.header("RSeq")) > 0
    again = await provisional(raw, 180)
    assert again.header("RSeq") == ringing.header("RSeq"), "it is retransmitted until its PRACK"
    prack(raw, dialog, ringing)
    assert (await raw.final_response("PRACK")).status == 200
    dialog.cseq -= 1  # the ACK of the INVITE has its number
    answering = asyncio.create_task(leg.answer())
    answer = await raw.complete_invite(dialog)
    media = await answering
    assert "RSeq" not in answer.text
    await assert_audio_flows(phone, raw, media)
    dialog.cseq += 1
    await raw.bye(dialog)
    await wait_ended(leg)


async def test_answer_does_not_wait_for_the_prack_of_a_180(phone: Phone, raw: RawPhone) -> None:
    """RFC 3262 3: only a session description in the 180 would delay the answer."""
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"), ("Supported: 100rel",))
    leg = await phone.next_leg()
    await leg.send_ringing()
    answering = asyncio.create_task(leg.answer())
    ringing = await provisional(raw, 180)
    answer = await raw.complete_invite(dialog)
    assert answer.body
    await answering
    prack(raw, dialog, ringing)
    assert (await raw.final_response("PRACK")).status == 200, "a late one is welcome"
    await raw.bye(dialog)
    await wait_ended(leg)


async def test_caller_without_100rel_gets_unreliable_responses(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.send_ringing()
    ringing = await provisional(raw, 180)
    await leg.reject(486)
    assert (await raw.final_response("INVITE")).status == 486
    assert "RSeq" not in ringing.text
    assert "Require" not in ringing.text
    await wait_ended(leg)


async def test_invite_supports_100rel_and_does_not_require_it(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    assert "100rel" in callee.invite.header("Supported")
    assert "PRACK" in callee.invite.header("Allow")
    assert callee.invite.header("Require") == ""
    callee.reject("486 Busy Here")
    await wait_ended(leg)


async def test_reliable_183_has_early_media_and_gets_one_prack(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    connecting = asyncio.create_task(leg.wait_connected())
    callee.learn_rtp_target()
    for _ in range(2):  # the second is a retransmission
        callee.ring(raw.offer("0"), "183 Session Progress", "Require: 100rel", "RSeq: 7")
    acknowledged = await callee.next_request("PRACK")
    assert acknowledged.header("RAck") == "7 " + callee.invite.header("CSeq")
    callee.accept(acknowledged)
    await asyncio.wait_for(leg.ringing, 5)
    await phone.audio.ticks(3)
    assert leg.has_media
    assert not leg.answered.done()
    await assert_audio_flows(phone, raw, leg.media)
    callee.ring("", "180 Ringing", "Require: 100rel", "RSeq: 9")  # 8 is missing
    callee.ring("", "180 Ringing", "Require: 100rel", "RSeq: 8")
    second = await callee.next_request("PRACK")
    assert second.header("RAck").startswith("8 "), "in order, and none of a gap (RFC 3262 4)"
    callee.accept(second)
    callee.answer("")
    await callee.next_request("ACK")
    media = await asyncio.wait_for(connecting, 5)
    await assert_audio_flows(phone, raw, media)
    await callee.hang_up()
    await wait_ended(leg)


async def test_update_changes_an_early_session(phone: Phone, raw: RawPhone) -> None:
    """RFC 3311 5.1: once the first offer is answered reliably, another may follow before the call is answered."""
    leg, callee = await place_call(phone, raw)
    connecting = asyncio.create_task(leg.wait_connected())
    callee.learn_rtp_target()
    callee.ring(raw.offer("0"), "183 Session Progress", "Require: 100rel", "RSeq: 1")
    callee.accept(await callee.next_request("PRACK"))
    await asyncio.wait_for(leg.ringing, 5)
    async with RawPhone(phone.target) as announcer:
        raw.send(callee.request("UPDATE", announcer.offer("0")))
        updated = await raw.final_response("UPDATE")
        assert (updated.status, updated.header("Content-Type")) == (200, "application/sdp")
        announcer._rtp_target = raw._rtp_target
        await assert_audio_flows(phone, announcer, leg.media)
        callee.answer("")
        await callee.next_request("ACK")
        media = await asyncio.wait_for(connecting, 5)
        await assert_audio_flows(phone, announcer, media)
    await callee.hang_up()
    await wait_ended(leg)


async def test_unmatched_prack_does_not_stop_retransmissions(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"), ("Require: 100rel",))
    leg = await phone.next_leg()
    await leg.send_ringing()
    ringing = await provisional(raw, 180)
    prack(raw, dialog, ringing, rack="999999 1 INVITE")
    await raw.final_response("PRACK")
    assert (await provisional(raw, 180)).header("RSeq") == ringing.header("RSeq")
    await leg.reject(486)
    assert (await raw.final_response("INVITE")).status == 486
    await wait_ended(leg)
