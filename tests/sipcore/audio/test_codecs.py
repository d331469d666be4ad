"""Every codec carries audio in both directions, at its own rate."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.tones import audible_s, loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

RATES = {"PCMU": 8000, "PCMA": 8000, "G722": 16000, "opus": 16000}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=RATES)
async def phone(request: pytest.FixtureRequest) -> AsyncIterator[Phone]:
    async with Phone(EndpointSettings(codecs=(request.param,), max_calls=10)) as phone:
        yield phone


async def test_a_tone_arrives_at_both_ends_with_its_pitch_and_length(phone: Phone) -> None:
    call = await phone.call()
    placed, taken = phone.audio.follow(call.placed_media.slot), phone.audio.follow(call.taken_media.slot)
    rate = call.taken_media.rate
    phone.pump.write(call.placed_media.slot, tone(rate, 500, 1.0))
    phone.pump.write(call.taken_media.slot, tone(rate, 1200, 0.6))
    await phone.audio.ticks(75)
    await call.end()
    assert loudest_hz(taken.received, rate) == pytest.approx(500, abs=5)
    assert loudest_hz(placed.received, rate) == pytest.approx(1200, abs=5)
    assert audible_s(taken.received, rate) == pytest.approx(1.0, abs=0.03)
    assert audible_s(placed.received, rate) == pytest.approx(0.6, abs=0.03)


async def test_a_slot_runs_at_the_rate_of_its_codec(phone: Phone) -> None:
    call = await phone.call()
    codec = phone.settings.codecs[0]
    assert call.taken_media.codec.lower() == codec.lower()
    assert call.taken_media.rate == call.placed_media.rate == phone.pump.rate(call.taken_media.slot) == RATES[codec]
    await call.end()
