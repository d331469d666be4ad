"""Calls with other SIP stacks: Debian's sipp and baresip."""

from __future__ import annotations

import asyncio

import pytest

from sipcore.dialogs.leg import Leg
from sipcore.settings import EndpointSettings
from tests.peers.baresip import Baresip
from tests.peers.sipp import Sipp
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.tones import audible_s, loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("opus", "G722", "PCMU", "PCMA"), max_calls=60)
PCMU = {"pt": "0", "codec": "PCMU/8000", "ptime": "20"}


@pytest.mark.parametrize("transport", ["u1", "t1"])
async def test_call_from_sipp_is_answered_and_echoes_our_audio(phone: Phone, transport: str) -> None:
    async with Sipp("call", phone.target, keys=PCMU, call_ms=700, transport=transport) as sipp:
        leg = await phone.next_leg()
        await leg.send_ringing()
        media = await leg.answer()
        track = phone.audio.follow(media.slot)
        phone.pump.write(media.slot, tone(8000, 800, 0.4))
        await phone.audio.ticks(30)
        await sipp.finished()
        end = await asyncio.wait_for(leg.ended, 5)
        leg.release()
    assert (end.code, end.by_peer) == (200, True)
    assert loudest_hz(track.received, 8000) == pytest.approx(800, abs=10)
    assert audible_s(track.received, 8000) == pytest.approx(0.4, abs=0.05)


async def test_our_bye_ends_a_call_from_sipp(phone: Phone) -> None:
    async with Sipp("call_until_bye", phone.target, keys=PCMU) as sipp:
        leg = await phone.next_leg()
        await leg.answer()
        await leg.hangup()
        await sipp.finished()
        assert not (await asyncio.wait_for(leg.ended, 5)).by_peer
        leg.release()


async def test_thirty_calls_at_ten_a_second_all_succeed(phone: Phone) -> None:
    async def serve(count: int) -> list[int]:
        ends = []
        for _ in range(count):
            leg = await phone.next_leg()
            ends.append(asyncio.create_task(hold(leg)))
        return [await end for end in ends]

    async with Sipp("call", phone.target, calls=30, rate=10, keys=PCMU, call_ms=500) as sipp:
        codes = await asyncio.wait_for(serve(30), 20)
        await sipp.finished()
        statistics = sipp.statistics()
    assert codes == [200] * 30
    assert (statistics["SuccessfulCall(C)"], statistics["FailedCall(C)"]) == ("30", "0")
    assert statistics["Retransmissions(C)"] == "0"
    await phone.audio.ticks(3)
    assert phone.pump.stats().calls == 0


async def hold(leg: Leg) -> int:
    """Answer and wait for the end; returns its status."""
    await leg.answer()
    end = await asyncio.wait_for(leg.ended, 10)
    leg.release()
    return end.code


@pytest.mark.parametrize(
    ("codec", "ours", "rate"),
    [("PCMU/8000/1", "PCMU", 8000), ("G722/16000/1", "G722", 16000), ("opus/48000/2", "opus", 16000)],
)
async def test_call_from_baresip_has_audio_in_both_directions(phone: Phone, codec: str, ours: str, rate: int) -> None:
    async with Baresip(codec) as baresip:
        await baresip.command("dial", phone.uri)
        leg = await phone.next_leg()
        media = await leg.answer()
        track = phone.audio.follow(media.slot)
        phone.pump.write(media.slot, tone(rate, 1000, 0.8))
        await baresip.event("CALL_ESTABLISHED")
        await phone.audio.ticks(50)
        async with asyncio.timeout(10):
            while audible_s(track.received, rate) < 0.8:  # it begins when it is scheduled
                await phone.audio.ticks(5)
        await leg.hangup()
        await baresip.event("CALL_CLOSED")
        leg.release()
        theirs, samples = await baresip.received_audio()
    assert (media.codec.lower(), media.rate) == (ours.lower(), rate)
    assert loudest_hz(track.received, rate) == pytest.approx(440, abs=5)
    assert loudest_hz(samples, theirs) == pytest.approx(1000, abs=5)
    assert audible_s(samples, theirs) == pytest.approx(0.8, abs=0.05)


async def test_baresip_hangs_up(phone: Phone) -> None:
    async with Baresip("PCMU/8000/1") as baresip:
        await baresip.command("dial", phone.uri)
        leg = await phone.next_leg()
        await leg.answer()
        await baresip.event("CALL_ESTABLISHED")
        await baresip.command("hangup")
        assert (await asyncio.wait_for(leg.ended, 5)).by_peer
        leg.release()


async def test_call_to_baresip_has_audio(phone: Phone) -> None:
    async with Baresip("PCMU/8000/1") as baresip:
        leg = await phone.endpoint.call(f"sip:baresip@127.0.0.1:{baresip.port}")
        media = await asyncio.wait_for(leg.wait_connected(), 5)
        track = phone.audio.follow(media.slot)
        await phone.audio.ticks(25)
        await leg.hangup()
        await baresip.event("CALL_CLOSED")
        leg.release()
    assert loudest_hz(track.received, 8000) == pytest.approx(440, abs=5)
