"""Consent to send: before a call is confirmed, RTP is sent for a second at most, and to third parties only comfort
noise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, Media
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall, place_call, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Datagrams, Dialog, Message, RawPhone, Rtp
from tests.sipcore.tones import from_mulaw, loudest_hz, mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=20, srtp="optional")
THIRD = "127.0.0.9"
HZ = 600
LOUD, QUIET = 2000, 40
SECOND = 50
"""Packets."""


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


@asynccontextmanager
async def third_party() -> AsyncIterator[tuple[Datagrams, Datagrams]]:
    """RTP and RTCP ports at an address that is not the source of SIP."""
    loop = asyncio.get_running_loop()
    for _ in range(50):
        _, rtp = await loop.create_datagram_endpoint(Datagrams, local_addr=(THIRD, 0))
        try:
            _, rtcp = await loop.create_datagram_endpoint(Datagrams, local_addr=(THIRD, rtp.port + 1))
            break
        except OSError:
            rtp.transport.close()
    yield rtp, rtcp
    rtp.transport.close()
    rtcp.transport.close()


def offer_to_third_party(raw: RawPhone, rtp: Datagrams) -> str:
    """An offer with the third party's media address."""
    offer = raw.offer("0").replace(f"m=audio {raw.rtp.port}", f"m=audio {rtp.port}")
    return offer.replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {THIRD}")


async def answered_without_ack(phone: Phone, raw: RawPhone, sdp: str) -> tuple[Dialog, Leg, Media, Message]:
    """A call whose 200 was received and gets no ACK; the agent speaks."""
    dialog = raw.dialog()
    raw.invite(dialog, sdp)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.final_response("INVITE")
    assert answer.status == 200
    media = await answering
    phone.pump.write(media.slot, tone(8000, HZ, 4.0))
    return dialog, leg, media, answer


def drained(socket: Datagrams) -> list[bytes]:
    """The packets received so far."""
    return [socket.received.get_nowait() for _ in range(socket.received.qsize())]


def loudness(packets: list[bytes]) -> int:
    """The highest amplitude in PCMU packets."""
    return max(int(np.abs(from_mulaw(Rtp.unpack(packet).payload)).max()) for packet in packets)


async def acknowledge(raw: RawPhone, dialog: Dialog, answer: Message) -> None:
    dialog.update_target(answer)
    raw.send(raw.request("ACK", dialog))
    await raw.wait_processed()


async def first_speech(socket: Datagrams) -> bytes:
    """The first half second of received speech."""
    got = b""
    while len(got) < 4000:
        payload = Rtp.unpack(await asyncio.wait_for(socket.received.get(), 5)).payload
        if got or np.abs(from_mulaw(payload)).max() > LOUD:
            got += payload
    return got


async def test_third_party_gets_1_s_of_comfort_noise_before_the_ack(phone: Phone, raw: RawPhone) -> None:
    async with third_party() as (rtp, rtcp):
        dialog, leg, _, answer = await answered_without_ack(phone, raw, offer_to_third_party(raw, rtp))
        await asyncio.sleep(1.2)
        packets, reports = drained(rtp), len(drained(rtcp))
        await asyncio.sleep(0.5)
        assert 40 <= len(packets) <= SECOND
        assert reports <= 2
        assert loudness(packets) < QUIET
        assert drained(rtp) == drained(rtcp) == []
        await acknowledge(raw, dialog, answer)
        assert loudest_hz(from_mulaw(await first_speech(rtp)), 8000) == pytest.approx(HZ, abs=10)
        await raw.bye(dialog)
        await wait_ended(leg)


async def test_third_party_gets_no_rtcp_bye_without_an_ack(phone: Phone, raw: RawPhone) -> None:
    """RTCP would send BYE."""
    async with third_party() as (rtp, rtcp):
        _, leg, _, _ = await answered_without_ack(phone, raw, offer_to_third_party(raw, rtp))
        await asyncio.sleep(1.1)
        drained(rtp), drained(rtcp)
        await leg.hangup()
        await wait_ended(leg)
        await raw.wait_processed()
        assert drained(rtp) == drained(rtcp) == []


async def test_speech_to_a_third_party_begins_after_the_ack(phone: Phone, raw: RawPhone) -> None:
    """No speech is lost."""
    async with third_party() as (rtp, _):
        dialog, leg, media, answer = await answered_without_ack(phone, raw, offer_to_third_party(raw, rtp))
        await phone.audio.ticks(20)
        assert phone.pump.sent_position(media.slot) == 0
        await acknowledge(raw, dialog, answer)
        await first_speech(rtp)
        assert 0 < phone.pump.sent_position(media.slot) < 3 * 8000
        await raw.bye(dialog)
        await wait_ended(leg)


async def test_packet_from_the_third_party_gives_consent(phone: Phone, raw: RawPhone) -> None:
    async with third_party() as (rtp, _):
        _, leg, _, answer = await answered_without_ack(phone, raw, offer_to_third_party(raw, rtp))
        await asyncio.sleep(1.1)
        drained(rtp)
        port = int(answer.body.split("m=audio ")[1].split()[0])
        rtp.transport.sendto(Rtp(0, 1, 160, mulaw(tone(8000, 440, 0.02))).pack(), ("127.0.0.1", port))
        await first_speech(rtp)
        await leg.hangup()
        await wait_ended(leg)


async def test_signalling_address_gets_1_s_of_speech_before_the_ack(phone: Phone, raw: RawPhone) -> None:
    drained(raw.rtp)
    dialog, leg, media, answer = await answered_without_ack(phone, raw, raw.offer("0"))
    await asyncio.sleep(1.2)
    packets = drained(raw.rtp)
    await asyncio.sleep(0.4)
    assert 40 <= len(packets) <= SECOND
    assert loudness(packets) > LOUD
    assert drained(raw.rtp) == []
    assert phone.pump.sent_position(media.slot) <= 8000, "the rest waits"
    await acknowledge(raw, dialog, answer)
    await first_speech(raw.rtp)
    await raw.bye(dialog)
    await wait_ended(leg)


async def test_dtls_handshake_is_retransmitted_for_1_s_before_the_ack(phone: Phone, raw: RawPhone) -> None:
    """Its first message would be retransmitted again and again."""
    async with third_party() as (rtp, _):
        offer = offer_to_third_party(raw, rtp).replace("RTP/AVP", "UDP/TLS/RTP/SAVP")
        prints = ":".join(["AB"] * 32)
        begun = time.monotonic()
        dialog = raw.dialog()
        raw.invite(dialog, f"{offer}a=setup:passive\r\na=fingerprint:SHA-256 {prints}\r\n")
        leg = await phone.next_leg()
        answering = asyncio.create_task(leg.answer())
        answer = await raw.final_response("INVITE")
        assert answer.status == 200, answer.text
        first = await asyncio.wait_for(rtp.received.get(), 5)
        assert first[0] == 22, "a handshake"
        await asyncio.sleep(3.5 - (time.monotonic() - begun))  # it is retransmitted after 1 and 3 s
        assert len(drained(rtp)) <= 1
        await acknowledge(raw, dialog, answer)
        await raw.bye(dialog)
        await wait_ended(leg)
        answering.cancel()


async def test_early_media_of_an_outbound_call_goes_to_a_third_party_for_1_s(phone: Phone, raw: RawPhone) -> None:
    async with third_party() as (rtp, _):
        leg, callee = await place_call(phone, raw)
        callee.ring(offer_to_third_party(raw, rtp), "183 Session Progress")
        await asyncio.sleep(1.5)
        packets = drained(rtp)
        assert 40 <= len(packets) <= SECOND
        assert loudness(packets) < QUIET
        callee.answer(offer_to_third_party(raw, rtp))
        media = await asyncio.wait_for(leg.wait_connected(), 5)
        phone.pump.write(media.slot, tone(8000, HZ, 2.0))
        await first_speech(rtp)
        await callee.hang_up()
        await wait_ended(leg)


async def test_confirmed_call_may_move_its_media_to_a_third_party(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    async with third_party() as (rtp, _):
        assert (await call.send_offer(offer_to_third_party(raw, rtp))).status == 200
        phone.pump.write(call.media.slot, tone(8000, HZ, 2.0))
        await first_speech(rtp)
        await call.end()


async def test_hold_by_0_0_0_0_gets_no_rtp(phone: Phone, raw: RawPhone) -> None:
    """Packets to 0.0.0.0 would reach this machine."""
    call = await LiveCall.make(phone, raw)
    held = raw.offer("0").replace("c=IN IP4 127.0.0.1", "c=IN IP4 0.0.0.0")
    assert (await call.send_offer(held)).status == 200
    assert call.leg.on_hold
    drained(raw.rtp)
    await phone.audio.ticks(15)
    assert drained(raw.rtp) == []
    assert (await call.send_offer(raw.offer("0"))).status == 200
    await raw.next_rtp()
    await call.end()
