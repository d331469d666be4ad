"""Reliable responses, session timers, UPDATE, re-INVITE and late offers with another SIP stack: sipp."""

from __future__ import annotations

import asyncio

import pytest

from sipcore.dialogs.leg import Leg
from sipcore.settings import EndpointSettings
from sipcore.trace.sip_message import SipMessage
from tests.peers.sipp import Sipp
from tests.sipcore.live_call import wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.tones import loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO_MS = 2000
"""How long the peer echoes before it hangs up: on a busy machine the tone starts late, and is still to be heard."""
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)


async def rings_until_acknowledged(phone: Phone, leg: Leg) -> None:
    """Send 180 and wait for its PRACK: sipp takes the next 200 for the response to it."""
    acknowledged = asyncio.Event()

    def watch(message: SipMessage, *_: object) -> None:
        if message.sent and (message.method, message.status) == ("PRACK", 200):
            acknowledged.set()

    watchers = phone.endpoint.sip_capture.watchers
    watchers.add(watch)
    await leg.send_ringing()
    await asyncio.wait_for(acknowledged.wait(), 5)
    watchers.discard(watch)


@pytest.mark.parametrize("transport", ["u1", "t1"])
async def test_sipp_caller_with_100rel_session_timer_and_hold(phone: Phone, transport: str) -> None:
    async with Sipp("reliable_provisional_caller", phone.target, call_ms=500, transport=transport) as sipp:
        leg = await phone.next_leg()
        holds: list[bool] = []
        leg.on_hold_change = holds.append
        await rings_until_acknowledged(phone, leg)
        media = await leg.answer()
        track = phone.audio.follow(media.slot)
        while holds != [True, False] and not leg.ended.done():
            await phone.audio.tick()
        phone.pump.write(media.slot, tone(8000, 800, 0.3))
        await phone.audio.ticks(20)
        await sipp.finished()
        assert (await wait_ended(leg)).by_peer
    assert holds == [True, False]
    assert loudest_hz(track.received[-4000:], 8000) == pytest.approx(800, abs=20), "it echoes our audio"


async def test_sipp_caller_without_an_offer(phone: Phone) -> None:
    async with Sipp("late_offer", phone.target, call_ms=ECHO_MS) as sipp:
        leg = await phone.next_leg()
        await leg.send_ringing()
        media = await leg.answer()
        track = phone.audio.follow(media.slot)
        phone.pump.write(media.slot, tone(8000, 800, 0.3))
        await phone.audio.ticks(20)
        await sipp.finished()
        assert (await wait_ended(leg)).by_peer
    assert loudest_hz(track.received, 8000) == pytest.approx(800, abs=20)


async def test_sipp_callee_with_reliable_early_media(phone: Phone) -> None:
    async with Sipp("reliable_provisional_callee", phone.target, call_ms=ECHO_MS) as sipp:
        leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{sipp.port}")
        media = await asyncio.wait_for(leg.wait_connected(), 8)
        track = phone.audio.follow(media.slot)
        phone.pump.write(media.slot, tone(8000, 800, 0.3))
        await phone.audio.ticks(20)
        await sipp.finished()
        assert (await wait_ended(leg)).by_peer
    assert loudest_hz(track.received, 8000) == pytest.approx(800, abs=20)
