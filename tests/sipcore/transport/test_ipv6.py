"""Calls over IPv6, beside those over IPv4."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.messages.headers import NameAddr
from sipcore.settings import EndpointSettings
from tests.peers.baresip import Baresip
from tests.sipcore.dialogs.test_inbound_call import packets_of
from tests.sipcore.live_call import LiveCall, end_call
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.rtp.test_srtp import assert_audio_both_ways
from tests.sipcore.tones import audible_s, from_mulaw, loudest_hz, tone
from tests.sipcore.transport.test_nat import addresses_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST = "::"
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=20)


@pytest_asyncio.fixture(loop_scope="module", params=["::1", "127.0.0.1"])
async def raw(request: pytest.FixtureRequest, phone: Phone) -> AsyncIterator[RawPhone]:
    async with at(phone, request.param) as raw:
        yield raw


def at(phone: Phone, host: str) -> RawPhone:
    return RawPhone(f"{'[::1]' if host == '::1' else host}:{phone.settings.port}", host)


async def test_inbound_call_has_audio_over_each_ip_version(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    track = phone.audio.follow(call.media.slot)
    phone.pump.write(call.media.slot, tone(8000, 600, 0.4))
    got = b""
    for packet in packets_of(tone(8000, 440, 0.4), 20):
        raw.send_rtp(packet)
        got += (await raw.next_rtp()).payload
        phone.audio.read()
    await phone.audio.ticks(4)
    await call.end()
    assert call.leg.facts.source == raw.host
    assert addresses_in(call.answer.body) == {raw.host}
    assert f"@{raw.named}:{phone.settings.port}" in call.answer.header("Contact")
    assert loudest_hz(track.received, 8000) == pytest.approx(440, abs=10)
    assert audible_s(track.received, 8000) > 0.3
    assert loudest_hz(from_mulaw(got), 8000) == pytest.approx(600, abs=10)


async def test_offer_has_the_ip_version_of_the_callee(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:1@{raw.named}:{raw.sip.port}", caller=NameAddr("100", "Desk"))
    callee = await RawCallee.wait_for_invite(raw)
    callee.answer()
    media = await asyncio.wait_for(leg.wait_connected(), 5)
    phone.pump.write(media.slot, tone(8000, 600, 0.3))
    got = b"".join([(await raw.next_rtp()).payload for _ in range(15)])
    ending = asyncio.create_task(leg.hangup())
    await callee.expect_bye()
    await ending
    await asyncio.wait_for(leg.ended, 5)
    leg.release()
    assert addresses_in(callee.invite.body) == {raw.host}
    assert callee.invite.header("From").startswith(f'"Desk" <sip:100@{raw.named}>')
    assert f"@{raw.named}:{phone.settings.port}" in callee.invite.header("Contact")
    assert callee.invite.header("Via").split()[1].startswith(f"{raw.named}:")
    assert loudest_hz(from_mulaw(got), 8000) == pytest.approx(600, abs=10)


async def test_late_offer_has_the_ip_version_of_the_caller(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, "")
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.final_response("INVITE")
    dialog.to = answer.header("To")
    dialog.target = answer.header("Contact").split("<")[1].split(">")[0]
    raw.send(raw.request("ACK", dialog, body=raw.offer("0")))
    await asyncio.wait_for(answering, 5)
    await end_call(raw, dialog, leg)
    assert addresses_in(answer.body) == {raw.host}


async def test_rtp_may_use_another_ip_version_than_sip(phone: Phone, raw: RawPhone) -> None:
    other = "127.0.0.1" if raw.host == "::1" else "::1"
    async with at(phone, other) as sound:
        call = await LiveCall.make(phone, raw, sound.offer("0"))
        phone.pump.write(call.media.slot, tone(8000, 600, 0.3))
        got = b"".join([(await sound.next_rtp()).payload for _ in range(15)])
        await call.end()
    assert addresses_in(call.answer.body) == {other}
    assert loudest_hz(from_mulaw(got), 8000) == pytest.approx(600, abs=10)


async def test_rtp_of_another_source_does_not_reach_a_call_over_ipv6(phone: Phone) -> None:
    async with at(phone, "::1") as raw, at(phone, "::1") as unknown_source:
        call = await LiveCall.make(phone, raw)
        track = phone.audio.follow(call.media.slot)
        raw.send_rtp(packets_of(tone(8000, 440, 0.02, level=0), 20)[0])
        await raw.next_rtp()
        port = int(call.answer.body.split("m=audio ")[1].split()[0])
        for packet in packets_of(tone(8000, 440, 0.4), 20):
            unknown_source.rtp.transport.sendto(packet.pack(), ("::1", port))
            await raw.next_rtp()
            phone.audio.read()
        await call.end()
    assert abs(track.received.astype(int)).max(initial=0) < 100


@pytest.mark.parametrize("spelled", ["::1", "0:0:0:0:0:0:0:1", "::0001", "::/127"])
async def test_source_is_known_in_every_notation_of_its_address(phone: Phone, spelled: str) -> None:
    phone.endpoint.set_sources([spelled])
    async with at(phone, "::1") as raw:
        assert (await raw.options()).status == 200
    phone.endpoint.set_sources(["127.0.0.1", "::1"])


async def test_unknown_source_gets_no_response_over_ipv6(phone: Phone) -> None:
    phone.endpoint.set_sources(["2001:db8::7"])
    async with at(phone, "::1") as raw:
        raw.send(raw.request("OPTIONS", raw.dialog()))
        phone.endpoint.set_sources(["127.0.0.1", "::1"])
        await raw.options()
        assert raw.sip.received.empty()


async def test_baresip_calls_and_is_called_over_ipv6(phone: Phone) -> None:
    async with Baresip("PCMU/8000/1", host="::1") as baresip:
        await baresip.command("dial", f"sip:100@[::1]:{phone.settings.port}")
        leg = await phone.next_leg()
        media = await leg.answer()
        await baresip.event("CALL_ESTABLISHED")
        await assert_audio_both_ways(phone, baresip, leg, media)
        leg = await phone.endpoint.call(baresip.uri)
        media = await asyncio.wait_for(leg.wait_connected(), 5)
        await assert_audio_both_ways(phone, baresip, leg, media)
