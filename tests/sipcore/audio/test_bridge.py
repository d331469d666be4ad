"""Bridged slots: each call hears the other one, at any rate, and none outlives its bridge in silence or noise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Call, Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.tones import audible_s, delay_of, from_mulaw, loudest_hz, mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("G722", "PCMU"), max_calls=40)
RATE = 16000
CALLER_HZ, CALLEE_HZ = 500, 900


@dataclass(frozen=True)
class Pair:
    """Two calls whose answered legs are bridged."""

    caller: Call
    callee: Call

    @property
    def slots(self) -> tuple[int, int]:
        """The bridged slots."""
        return self.caller.taken_media.slot, self.callee.taken_media.slot


@pytest_asyncio.fixture(loop_scope="module")
async def pair(phone: Phone) -> AsyncIterator[Pair]:
    """Both calls are G.722."""
    pair = Pair(await phone.call(), await phone.call())
    phone.pump.bridge(*pair.slots)
    await phone.audio.ticks(3)
    yield pair
    await pair.caller.end()
    await pair.callee.end()


async def test_each_peer_hears_the_other_one(phone: Phone, pair: Pair) -> None:
    caller, callee = pair.caller.placed_media.slot, pair.callee.placed_media.slot
    heard_by_caller, heard_by_callee = phone.audio.follow(caller), phone.audio.follow(callee)
    phone.pump.write(caller, tone(RATE, CALLER_HZ, 1.0))
    phone.pump.write(callee, tone(RATE, CALLEE_HZ, 0.6))
    await phone.audio.ticks(80)
    assert loudest_hz(heard_by_callee.received, RATE) == pytest.approx(CALLER_HZ, abs=5)
    assert loudest_hz(heard_by_caller.received, RATE) == pytest.approx(CALLEE_HZ, abs=5)
    assert audible_s(heard_by_callee.received, RATE) == pytest.approx(1.0, abs=0.03)
    assert audible_s(heard_by_caller.received, RATE) == pytest.approx(0.6, abs=0.03)


async def test_bridged_audio_is_in_the_sent_audio_of_the_other_slot(phone: Phone, pair: Pair) -> None:
    caller, callee = (phone.audio.follow(slot) for slot in pair.slots)
    noise = np.random.default_rng(3).normal(0, 3000, RATE).astype(np.int16)
    phone.pump.write(pair.caller.placed_media.slot, noise)
    await phone.audio.ticks(70)
    received, sent = caller.received, callee.sent
    assert len(received) == len(sent)
    assert delay_of(sent, received) <= RATE * 20 // 1000
    begin = int(np.flatnonzero(np.abs(received) > 500)[0]) + RATE // 10
    delay = delay_of(sent, received)
    part = slice(begin, begin + RATE // 2)
    assert np.array_equal(sent[begin + delay : begin + delay + RATE // 2], received[part])


async def test_written_speech_is_mixed_with_the_bridged_audio(phone: Phone, pair: Pair) -> None:
    heard = phone.audio.follow(pair.callee.placed_media.slot)
    phone.pump.write(pair.caller.placed_media.slot, tone(RATE, CALLER_HZ, 1.0))
    phone.pump.write(pair.callee.taken_media.slot, tone(RATE, 1300, 1.0))
    await phone.audio.ticks(70)
    spectrum = np.abs(np.fft.rfft(heard.received[RATE // 4 : RATE]))
    hz = np.fft.rfftfreq(RATE - RATE // 4, 1 / RATE)
    loud = set(np.round(hz[spectrum > spectrum.max() / 4] / 100) * 100)
    assert loud == {CALLER_HZ, 1300}


async def test_end_of_a_bridge_is_the_end_for_both(phone: Phone, pair: Pair) -> None:
    phone.pump.unbridge(pair.slots[1])
    phone.pump.unbridge(pair.slots[0])
    caller, callee = pair.caller.placed_media.slot, pair.callee.placed_media.slot
    heard_by_caller, heard_by_callee = phone.audio.follow(caller), phone.audio.follow(callee)
    await phone.audio.ticks(10)
    phone.pump.write(caller, tone(RATE, CALLER_HZ, 0.4))
    phone.pump.write(callee, tone(RATE, CALLEE_HZ, 0.4))
    await phone.audio.ticks(40)
    for heard in (heard_by_caller, heard_by_callee):
        assert audible_s(heard.received, RATE, 100) < 0.05


async def test_released_slot_ends_the_bridge_and_the_other_call_goes_on(phone: Phone) -> None:
    caller, callee = await phone.call(), await phone.call()
    phone.pump.bridge(caller.taken_media.slot, callee.taken_media.slot)
    phone.pump.write(callee.placed_media.slot, tone(RATE, CALLEE_HZ, 2.0))
    await phone.audio.ticks(10)
    await callee.end()
    heard = phone.audio.follow(caller.placed_media.slot)
    await phone.audio.ticks(10)
    phone.pump.write(caller.taken_media.slot, tone(RATE, 1300, 0.4))
    await phone.audio.ticks(40)
    late = heard.received[RATE // 5 :]
    assert loudest_hz(late, RATE) == pytest.approx(1300, abs=5)
    assert audible_s(late, RATE) == pytest.approx(0.4, abs=0.03)
    phone.pump.unbridge(caller.taken_media.slot)
    await caller.end()


async def test_next_bridge_replaces_the_one_before(phone: Phone, pair: Pair) -> None:
    third = await phone.call()
    phone.pump.bridge(pair.slots[0], third.taken_media.slot)
    heard_before, heard_now = (
        phone.audio.follow(slot) for slot in (pair.callee.placed_media.slot, third.placed_media.slot)
    )
    await phone.audio.ticks(10)
    phone.pump.write(pair.caller.placed_media.slot, tone(RATE, CALLER_HZ, 0.4))
    await phone.audio.ticks(40)
    assert audible_s(heard_before.received, RATE, 100) < 0.05
    assert audible_s(heard_now.received, RATE) == pytest.approx(0.4, abs=0.03)
    await third.end()


async def test_a_slot_cannot_be_bridged_with_itself_or_a_closed_one(phone: Phone) -> None:
    call, ended = await phone.call(), await phone.call()
    await ended.end()
    slot = call.taken_media.slot
    with pytest.raises(ValueError, match="two slots"):
        phone.pump.bridge(slot, slot)
    with pytest.raises(KeyError):
        phone.pump.bridge(slot, ended.taken_media.slot)
    with pytest.raises(KeyError):
        phone.pump.unbridge(ended.taken_media.slot)
    await call.end()


async def test_narrow_and_wide_band_hear_each_other(phone: Phone) -> None:
    wide = await phone.call()
    async with RawPhone(phone.target) as raw:
        narrow = await LiveCall.make(phone, raw)
        assert (narrow.media.rate, wide.taken_media.rate) == (8000, 16000)
        phone.pump.bridge(wide.taken_media.slot, narrow.media.slot)
        heard_wide = phone.audio.follow(wide.placed_media.slot)
        phone.pump.write(wide.placed_media.slot, tone(RATE, CALLEE_HZ, 0.8))
        samples, heard_narrow = tone(8000, CALLER_HZ, 0.8), list[bytes]()
        for number in range(40):
            payload = mulaw(samples[160 * number : 160 * (number + 1)])
            raw.send_rtp(Rtp(0, number + 1000, number * 160, payload, not number))
            heard_narrow.append((await raw.next_rtp()).payload)
            phone.audio.read()
        await phone.audio.ticks(8)
        assert loudest_hz(from_mulaw(b"".join(heard_narrow)), 8000) == pytest.approx(CALLEE_HZ, abs=5)
        assert loudest_hz(heard_wide.received, RATE) == pytest.approx(CALLER_HZ, abs=5)
        assert audible_s(heard_wide.received, RATE) > 0.6
        await narrow.end()
    await wide.end()


async def test_delay_is_the_same_after_a_hold_as_before(phone: Phone) -> None:
    """A peer on hold takes no audio; what has piled up meanwhile is not heard afterwards."""
    caller = await phone.call()
    async with RawPhone(phone.target) as raw:
        callee = await LiveCall.make(phone, raw)
        offer = raw.offer("0")
        phone.pump.bridge(caller.taken_media.slot, callee.media.slot)
        phone.pump.write(caller.placed_media.slot, tone(RATE, CALLER_HZ, 4.0))
        await phone.audio.ticks(10)
        await callee.send_offer(offer.replace("a=fmtp", "a=inactive\r\na=fmtp"))
        await phone.audio.ticks(30)
        await callee.send_offer(offer)
        await phone.audio.ticks(10)
        received, sent = phone.audio.follow(caller.taken_media.slot), phone.audio.follow(callee.media.slot)
        phone.pump.flush(caller.placed_media.slot)
        noise = np.random.default_rng(5).normal(0, 3000, RATE)
        smooth = np.convolve(noise, np.ones(8) / 8, "same").astype(np.int16)
        phone.pump.write(caller.placed_media.slot, smooth)
        await phone.audio.ticks(60)
        delay_ms = delay_of(sent.sent, received.received[::2]) / 8
        assert delay_ms <= 45
        await callee.end()
    await caller.end()
