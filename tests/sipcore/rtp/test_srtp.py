"""Optional SRTP, with other SIP stacks, and byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from media.audio_port import Samples
from sipcore.dialogs.leg import Leg, Media
from sipcore.settings import EndpointSettings
from tests.peers.baresip import Baresip
from tests.sipcore.dialogs.test_inbound_call import packets_of
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone, Rtp
from tests.sipcore.raw.raw_srtp import SUITES, Keys, offer_with_keys
from tests.sipcore.tones import audible_s, from_mulaw, loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=20, srtp="optional")
PCMU = "PCMU/8000/1"


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def assert_audio_both_ways(phone: Phone, baresip: Baresip, leg: Leg, media: Media) -> None:
    """Hear the peer, talk, then end the call: each side has received the other's tone."""
    track = phone.audio.follow(media.slot)
    async with asyncio.timeout(10):
        while audible_s(track.received, 8000) < 0.6:  # it begins when it is scheduled
            await phone.audio.ticks(5)
    phone.pump.write(media.slot, tone(8000, 1000, 0.6))
    await phone.audio.ticks(45)
    await leg.hangup()
    await baresip.event("CALL_CLOSED")
    leg.release()
    rate, received = await baresip.received_audio()
    assert loudest_hz(track.received, 8000) == pytest.approx(440, abs=5)
    assert loudest_hz(received, rate) == pytest.approx(1000, abs=5)
    assert audible_s(received, rate) == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize(
    ("encryption", "keying"), [("", None), ("srtp", "sdes"), ("srtp-mand", "sdes"), ("dtls_srtp", "dtls")]
)
async def test_inbound_call_has_audio_with_each_keying_of_the_offer(
    phone: Phone, encryption: str, keying: str | None
) -> None:
    async with Baresip(PCMU, encryption=encryption) as baresip:
        await baresip.command("dial", phone.uri)
        leg = await phone.next_leg()
        media = await leg.answer()
        assert media.keying == keying
        await baresip.event("CALL_ESTABLISHED")
        await assert_audio_both_ways(phone, baresip, leg, media)


@pytest.mark.parametrize(("encryption", "keying"), [("", None), ("srtp", "sdes"), ("srtp-mand", "sdes")])
async def test_callee_may_answer_with_or_without_srtp(phone: Phone, encryption: str, keying: str | None) -> None:
    async with Baresip(PCMU, encryption=encryption) as baresip:
        leg = await phone.endpoint.call(baresip.uri)
        media = await asyncio.wait_for(leg.wait_connected(), 5)
        assert media.keying == keying
        await assert_audio_both_ways(phone, baresip, leg, media)


async def test_optional_srtp_is_offered_as_rtp_avp_with_crypto(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    callee.reject("486 Busy Here")
    await leg.ended
    assert callee.invite.body.count("m=") == 1
    assert " RTP/AVP " in callee.invite.body
    assert [line.split()[1] for line in callee.invite.body.splitlines() if line.startswith("a=crypto:")] == [
        "AES_CM_128_HMAC_SHA1_80", "AES_256_CM_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32", "AES_256_CM_HMAC_SHA1_32",
    ]  # fmt: skip


async def test_required_srtp_is_offered_once_after_a_488(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}", headers=[("X-A", "b")])
    first = await RawCallee.wait_for_invite(raw)
    first.ring(raw.offer("0"), "183 Session Progress")
    await asyncio.wait_for(leg.ringing, 5)
    first.reject("488 Not Acceptable Here")
    second = await RawCallee.wait_for_invite(raw)
    assert (second.invite.header("Call-ID"), second.invite.header("X-A")) == (leg.sip_call_id, "b")
    assert " RTP/SAVP " in second.invite.body
    assert Keys.from_sdp(second.invite.body).master != Keys.from_sdp(first.invite.body).master
    assert not leg.ended.done()
    second.reject("488 Not Acceptable Here")
    assert (await asyncio.wait_for(leg.ended, 5)).code == 488
    leg.release()
    await raw.options()
    assert phone.endpoint.live_legs == 0


async def test_plain_answer_to_required_srtp_ends_the_call(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    (await RawCallee.wait_for_invite(raw)).reject("488 Not Acceptable Here")
    second = await RawCallee.wait_for_invite(raw)
    second.answer()
    await second.expect_bye()
    await asyncio.wait_for(leg.ended, 5)
    assert not leg.has_media


async def test_inbound_plain_call_beside_an_offer_of_required_srtp(phone: Phone, raw: RawPhone) -> None:
    """That offer changes no other call."""
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    (await RawCallee.wait_for_invite(raw)).reject("488 Not Acceptable Here")
    second = await RawCallee.wait_for_invite(raw)
    async with RawPhone(phone.target) as plain:
        call = await LiveCall.make(phone, plain, plain.offer("0"))
        assert call.media.keying is None
        await call.end()
    other = await phone.endpoint.call(f"sip:2@127.0.0.1:{raw.sip.port}")
    third = await RawCallee.wait_for_invite(raw)
    assert " RTP/AVP " in third.invite.body
    for callee in (second, third):
        callee.reject("486 Busy Here")
    await asyncio.wait((leg.ended, other.ended), timeout=5)
    assert (leg.ended.result().code, other.ended.result().code) == (486, 486)


async def test_a_call_that_was_hung_up_offers_no_required_srtp(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    callee.ring()
    await asyncio.wait_for(leg.ringing, 5)
    ending = asyncio.create_task(leg.hangup())
    callee.accept(await callee.next_request("CANCEL"))
    callee.reject("488 Not Acceptable Here")
    await ending
    await asyncio.wait_for(leg.ended, 5)
    await callee.next_request("ACK")
    await raw.options()
    assert raw.sip.received.empty()


async def talk(
    phone: Phone, raw: RawPhone, media: Media, theirs: Keys, ours: Keys, start: int = 0
) -> tuple[Samples, Samples]:
    """0.4 s in each direction: what we received of their 440 Hz, and they of our 600 Hz."""
    track = phone.audio.follow(media.slot)
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    phone.pump.write(media.slot, tone(8000, 600, 0.4))
    got = b""
    for packet in packets_of(tone(8000, 440, 0.4), 20):
        placed = Rtp(0, packet.sequence + start, packet.timestamp + 160 * start, packet.payload)
        raw.send_rtp_bytes(theirs.protect(placed.pack()))
        got += ours.unprotect(await raw.next_rtp_bytes()).payload
        phone.audio.read()
    await phone.audio.ticks(4)
    return track.received, from_mulaw(got)


@pytest.mark.parametrize("suite", list(SUITES))
async def test_each_srtp_suite_interoperates(phone: Phone, raw: RawPhone, suite: str) -> None:
    theirs = Keys.new(suite)
    call = await LiveCall.make(phone, raw, offer_with_keys(raw.offer("0"), theirs))
    ours = Keys.from_sdp(call.answer.body)
    assert " RTP/SAVP " in call.answer.body
    assert f"a=crypto:1 {suite} inline:" in call.answer.body
    assert ours.master != theirs.master
    received, said = await talk(phone, raw, call.media, theirs, ours)
    await call.end()
    assert loudest_hz(received, 8000) == pytest.approx(440, abs=10)
    assert loudest_hz(said, 8000) == pytest.approx(600, abs=10)


async def test_first_supported_suite_of_an_offer_is_accepted_with_its_tag(phone: Phone, raw: RawPhone) -> None:
    offer = offer_with_keys(raw.offer("0"), Keys.new("AES_256_CM_HMAC_SHA1_80"), Keys.new())
    offer = offer.replace("a=crypto:1 ", "a=crypto:7 SOMETHING_NEW inline:AAAA\r\na=crypto:1 ")
    call = await LiveCall.make(phone, raw, offer)
    await call.end()
    assert "a=crypto:1 AES_256_CM_HMAC_SHA1_80 " in call.answer.body
    assert call.answer.body.count("a=crypto") == 1


async def test_reinvite_with_new_keys_keeps_the_audio(phone: Phone, raw: RawPhone) -> None:
    theirs = Keys.new()
    call = await LiveCall.make(phone, raw, offer_with_keys(raw.offer("0"), theirs))
    await talk(phone, raw, call.media, theirs, Keys.from_sdp(call.answer.body))
    renewed = Keys.new()
    call.dialog.cseq += 1
    raw.invite(call.dialog, offer_with_keys(raw.offer("0"), renewed))
    again = await raw.complete_invite(call.dialog)
    await raw.options()
    received, said = await talk(phone, raw, call.media, renewed, Keys.from_sdp(again.body), start=100)
    await call.end()
    assert loudest_hz(received, 8000) == pytest.approx(440, abs=10)
    assert audible_s(received, 8000) > 0.3
    assert loudest_hz(said, 8000) == pytest.approx(600, abs=10)


@pytest.mark.parametrize("wrong", ["another key", "no encryption"])
async def test_srtp_with_wrong_keys_is_dropped(phone: Phone, raw: RawPhone, wrong: str) -> None:
    theirs = Keys.new()
    call = await LiveCall.make(phone, raw, offer_with_keys(raw.offer("0"), theirs))
    track = phone.audio.follow(call.media.slot)
    other = Keys.new()
    for packet in packets_of(tone(8000, 440, 0.6), 20):
        data = packet.pack()
        raw.send_rtp_bytes(other.protect(data) if wrong == "another key" else data)
        await phone.audio.tick()
    silence_s = call.leg.rtp_silence_s()
    await call.end()
    assert abs(track.received.astype(int)).max(initial=0) < 100
    assert silence_s > 0.5, "so a call with nothing else ends as media_timeout"


def with_bad_crypto(crypto: str) -> Keys:
    """An offer whose crypto attribute has this value."""

    class Bad(Keys):
        def attribute(self, tag: int = 1) -> str:
            return crypto

    return Bad("", b"")


@pytest.mark.parametrize(
    "crypto",
    [
        "crypto:1 SOMETHING_NEW inline:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "crypto:1 AES_CM_128_HMAC_SHA1_80 inline:AAAA",
        "crypto:1 AES_CM_128_HMAC_SHA1_80 inline:" + "!" * 40,
        "crypto:1 AES_CM_128_HMAC_SHA1_80 inline:" + "A" * 4000,
        "crypto:1 AES_CM_128_HMAC_SHA1_80",
        "crypto:x",
        "ptime:20",
    ],
    ids=["unknown suite", "short key", "no base64", "long key", "no key", "no tag", "no crypto at all"],
)
async def test_offer_with_unusable_srtp_gets_488(phone: Phone, raw: RawPhone, crypto: str) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, offer_with_keys(raw.offer("0"), with_bad_crypto(crypto)))
    assert (await raw.final_response("INVITE")).status == 488
    assert (await raw.options()).status == 200
    assert phone.incoming.empty()


async def test_sdes_keys_in_unencrypted_sip_are_warned_of_once_and_not_logged(phone: Phone) -> None:
    with capture_logs() as logs:
        async with RawPhone(phone.target, "127.0.0.8") as raw:
            phone.endpoint.set_sources(["127.0.0.1", "127.0.0.8"])
            theirs, answers = Keys.new(), []
            for _ in range(2):
                call = await LiveCall.make(phone, raw, offer_with_keys(raw.offer("0"), theirs))
                answers.append(call.answer)
                await call.end()
            phone.endpoint.set_sources(["127.0.0.1"])
    warnings = [line for line in logs if line["event"] == "sip.srtp_keys_in_clear"]
    assert [line["peer"] for line in warnings] == ["127.0.0.8"]
    for keys in (theirs, *map(_keys_of, answers)):
        assert keys.attribute().partition("inline:")[2] not in repr(logs)


def _keys_of(answer: Message) -> Keys:
    return Keys.from_sdp(answer.body)


async def test_a_held_call_stays_encrypted_when_it_is_resumed(phone: Phone, raw: RawPhone) -> None:
    theirs = Keys.new()
    call = await LiveCall.make(phone, raw, offer_with_keys(raw.offer("0"), theirs))
    for attribute in ("sendonly", "sendrecv"):
        answer = await _again(raw, call.dialog, offer_with_keys(raw.offer("0", attribute), theirs))
        assert " RTP/SAVP " in answer.body
    await raw.options()
    received, said = await talk(phone, raw, call.media, theirs, Keys.from_sdp(answer.body), start=100)
    await call.end()
    assert loudest_hz(received, 8000) == pytest.approx(440, abs=10)
    assert loudest_hz(said, 8000) == pytest.approx(600, abs=10)


async def _again(raw: RawPhone, dialog: Dialog, sdp: str) -> Message:
    dialog.cseq += 1
    raw.invite(dialog, sdp)
    return await raw.complete_invite(dialog)
