"""The RTP source lock with SRTP: packets that are not authenticated with the call's keys never count."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.dialogs.test_inbound_call import packets_of
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_srtp import Keys, offer_with_keys
from tests.sipcore.tones import from_mulaw, loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=20, srtp="required")
PRIVATE = "127.77.0.1"


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def test_peer_behind_nat_is_accepted_by_authenticated_packets(phone: Phone, raw: RawPhone) -> None:
    """Another source at the same host, which has sent for longer, is not: it does not have the keys."""
    theirs = Keys.new()
    offer = offer_with_keys(raw.offer("0"), theirs).replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {PRIVATE}")
    call = await LiveCall.make(phone, raw, offer)
    ours = Keys.from_sdp(call.answer.body)
    phone.pump.write(call.media.slot, tone(8000, 600, 4.0))
    track = phone.audio.follow(call.media.slot)
    assert raw._rtp_target
    async with RawPhone(phone.target) as unknown_source:
        forger = Keys.new()
        for packet in packets_of(tone(8000, 1700, 0.6), 20):
            unknown_source.rtp.transport.sendto(packet.pack(), raw._rtp_target)
            unknown_source.rtp.transport.sendto(forger.protect(packet.pack()), raw._rtp_target)
            await phone.audio.tick()
        speech = packets_of(tone(8000, 440, 1.2), 20)
        for packet in speech[:30]:  # no packets of ours pace it yet
            raw.send_rtp_bytes(theirs.protect(packet.pack()))
            await phone.audio.tick()
        got = b""
        for packet in speech[30:]:
            got += ours.unprotect(await raw.next_rtp_bytes()).payload
            raw.send_rtp_bytes(theirs.protect(packet.pack()))
            phone.audio.read()
        assert unknown_source.rtp.received.empty()
    totals = phone.pump.rtp_totals(call.media.slot)
    await call.end()
    assert loudest_hz(track.received[-4000:], 8000) == pytest.approx(440, abs=10)
    assert loudest_hz(from_mulaw(got), 8000) == pytest.approx(600, abs=10)
    assert totals.lost == 0
    assert totals.received < 45, "the first 0.4 s were probation"


async def test_call_from_behind_nat_counts_no_foreign_packets(phone: Phone, raw: RawPhone) -> None:
    """Packets during the probation are the peer's own."""
    theirs = Keys.new()
    offer = offer_with_keys(raw.offer("0"), theirs).replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {PRIVATE}")
    call = await LiveCall.make(phone, raw, offer)
    for packet in packets_of(tone(8000, 440, 0.8), 20):
        raw.send_rtp_bytes(theirs.protect(packet.pack()))
        await phone.audio.tick()
    quality = call.leg.quality()
    await call.end()
    assert (quality.foreign, quality.malformed) == (0, 0)
    assert 10 <= quality.received.packets <= 25
