"""RTP over IPv6, on a server that listens on all addresses of both IP versions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Media
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.tones import from_mulaw, loudest_hz, mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

HZ, OUR_HZ = 440, 600
ELSEWHERE = "2001:db8::7"
"""An address of nobody."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def phone() -> AsyncIterator[Phone]:
    async with Phone(EndpointSettings(codecs=("PCMU",), max_calls=10), host="::") as phone:
        yield phone


async def talked(phone: Phone, raw: RawPhone, media: Media) -> tuple[float, float]:
    """The tones that both sides receive, Hz."""
    track = phone.audio.follow(media.slot)
    sound, got = mulaw(tone(8000, HZ, 0.02 * 40)), b""
    phone.pump.write(media.slot, tone(8000, OUR_HZ, 3.0))
    for number in range(40):
        got += (await raw.next_rtp()).payload
        raw.send_rtp(Rtp(0, number, number * 160, sound[number * 160 : (number + 1) * 160]))
        phone.audio.read()
    await phone.audio.ticks(3)
    return loudest_hz(track.received[-4800:], 8000), loudest_hz(from_mulaw(got[-4800:]), 8000)


@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
async def test_sdp_has_the_local_address_on_the_route_to_the_caller(phone: Phone, host: str) -> None:
    """For its RTP, and for its RTCP (RFC 3605)."""
    named = f"[{host}]" if ":" in host else host
    async with RawPhone(f"{named}:{phone.settings.port}", host) as raw:
        call = await LiveCall.make(phone, raw)
        family = "IP6" if ":" in host else "IP4"
        addresses = re.findall(r"^(?:c=|a=rtcp:\d+ )IN (IP\d) (\S+)", call.answer.body, re.MULTILINE)
        assert addresses
        assert set(addresses) == {(family, host)}
        assert await talked(phone, raw, call.media) == (pytest.approx(HZ, abs=10), pytest.approx(OUR_HZ, abs=10))
        await call.end()


async def test_rtp_from_the_signalling_ipv6_address_is_accepted(phone: Phone) -> None:
    """The BPF filter admits both addresses, the source lock only one of them."""
    async with RawPhone(f"[::1]:{phone.settings.port}", "::1") as raw, RawPhone("[::1]:9", "::1") as unknown_source:
        offer = raw.offer("0").replace("c=IN IP6 ::1", f"c=IN IP6 {ELSEWHERE}")
        call = await LiveCall.make(phone, raw, offer)
        for number in range(25):
            raw.send_rtp(Rtp(0, number, number * 160, mulaw(tone(8000, HZ, 0.02))))
            await phone.audio.tick()
        assert raw._rtp_target
        for number in range(25):
            packet = Rtp(0, 900 + number, number * 160, mulaw(tone(8000, 1700, 0.02)))
            unknown_source.rtp.transport.sendto(packet.pack(), raw._rtp_target)
        assert await talked(phone, raw, call.media) == (pytest.approx(HZ, abs=10), pytest.approx(OUR_HZ, abs=10))
        totals = phone.pump.rtp_totals(call.media.slot)
        assert unknown_source.rtp.received.empty()
        assert totals.foreign >= 25
        await call.end()
