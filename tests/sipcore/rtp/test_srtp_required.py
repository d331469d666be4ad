"""Required SRTP: no RTP is sent unencrypted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.peers.baresip import Baresip
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_srtp import Keys, offer_with_keys
from tests.sipcore.rtp.test_srtp import PCMU, assert_audio_both_ways

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=20, srtp="required")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def test_offer_without_srtp_gets_488_and_makes_no_leg(phone: Phone, raw: RawPhone) -> None:
    raw.invite(raw.dialog(), raw.offer("0"))
    assert (await raw.final_response("INVITE")).status == 488
    assert (await raw.options()).status == 200
    assert phone.incoming.empty()


async def test_reinvite_without_srtp_gets_488(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, offer_with_keys(raw.offer("0"), Keys.new()))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.complete_invite(dialog)
    await answering
    ours = Keys.from_sdp(answer.body)
    dialog.cseq += 1
    raw.invite(dialog, raw.offer("0"))
    assert (await raw.final_response("INVITE")).status == 488
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    for _ in range(3):
        ours.unprotect(await raw.next_rtp_bytes())
    await raw.bye(dialog)
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_late_answer_without_srtp_ends_the_call(phone: Phone, raw: RawPhone) -> None:
    """The re-INVITE has no SDP, so that ours is the offer, and the ACK has the answer (RFC 3261 14.1)."""
    dialog = raw.dialog()
    raw.invite(dialog, offer_with_keys(raw.offer("0"), Keys.new()))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    await answering
    dialog.cseq += 1
    raw.invite(dialog, "")
    assert " RTP/SAVP " in (await raw.final_response("INVITE")).body
    raw.send(raw.request("ACK", dialog, body=raw.offer("0")))
    raw.reply(await raw.next_request("BYE"), "200 OK")
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_required_srtp_is_offered_as_rtp_savp(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    callee.reject("488 Not Acceptable Here")
    await leg.ended
    assert callee.invite.body.count("m=") == 1
    assert " RTP/SAVP " in callee.invite.body
    assert "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:" in callee.invite.body


async def test_answer_without_srtp_ends_the_call(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    callee.answer()
    await callee.expect_bye()
    await asyncio.wait_for(leg.ended, 5)
    assert not leg.has_media
    assert raw.rtp.received.empty()


@pytest.mark.parametrize(("encryption", "keying"), [("srtp-mand", "sdes"), ("dtls_srtp", "dtls")])
async def test_inbound_call_with_srtp_has_audio(phone: Phone, encryption: str, keying: str) -> None:
    async with Baresip(PCMU, encryption=encryption) as baresip:
        await baresip.command("dial", phone.uri)
        leg = await phone.next_leg()
        media = await leg.answer()
        assert media.keying == keying
        await baresip.event("CALL_ESTABLISHED")
        await assert_audio_both_ways(phone, baresip, leg, media)


async def test_outbound_call_with_srtp_has_audio(phone: Phone) -> None:
    async with Baresip(PCMU, encryption="srtp-mand") as baresip:
        leg = await phone.endpoint.call(baresip.uri)
        media = await asyncio.wait_for(leg.wait_connected(), 5)
        assert media.keying == "sdes"
        await assert_audio_both_ways(phone, baresip, leg, media)
