"""Transfers with other SIP phones: Debian's baresip sends REFER, and receives the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sipcore.dialogs.leg import Leg
from sipcore.messages.refer import ReferRequest
from sipcore.settings import EndpointSettings
from tests.peers.baresip import Baresip
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.tones import loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("G722", "PCMU", "PCMA"), max_calls=20)


@pytest.mark.parametrize("codec", ["PCMU/8000/1", "G722/16000/1"])
async def test_refer_of_baresip_transfers_its_call_to_another_phone(phone: Phone, codec: str) -> None:
    """The other phone has another codec; it receives the audio of the first leg."""
    async with Baresip(codec) as first, Baresip("PCMA/8000/1") as second:

        async def reach(wanted: ReferRequest, accept: Callable[[], Awaitable[None]]) -> Leg | int:
            assert wanted.contact.user == "555"
            await accept()
            leg = await phone.endpoint.call(second.uri)
            await leg.wait_connected()
            return leg

        await first.command("dial", phone.uri)
        leg = await phone.next_leg()
        leg.on_refer = reach
        media = await leg.answer()
        await first.event("CALL_ESTABLISHED")
        await first.command("transfer", f"sip:555@{phone.target}")
        await second.event("CALL_ESTABLISHED")
        await first.event("CALL_CLOSED")
        track = phone.audio.follow(media.slot)
        phone.pump.write(media.slot, tone(media.rate, 800, 0.6))
        await phone.audio.ticks(60)
        assert not leg.ended.done()
        assert loudest_hz(track.received, media.rate) == pytest.approx(440, abs=10)
        await leg.hangup()
        await second.event("CALL_CLOSED")
        await asyncio.wait_for(leg.ended, 5)
        leg.release()
        rate, samples = await second.received_audio()
        assert loudest_hz(samples, rate) == pytest.approx(800, abs=10)
