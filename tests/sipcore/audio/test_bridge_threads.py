"""Bridged slots that different threads of the pump tick: one thread takes both over, and the bridge adds no delay."""

from __future__ import annotations

import numpy as np
import pytest

from media.audio_port import Samples
from sipcore.settings import EndpointSettings
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.tones import delay_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("G722", "PCMU"), max_calls=300)
"""More slots than one thread ticks: consecutive slots have different ones."""
RATE = 16000


def noise(seed: int) -> Samples:
    """A second of noise."""
    return np.random.default_rng(seed).normal(0, 3000, RATE).astype(np.int16)


def signed_delay(sent: Samples, received: Samples) -> int:
    """Samples by which what is sent lags behind what was received; negative if the track of what is sent has begun
    later."""
    ahead = np.zeros(RATE // 2, np.int16)
    return delay_of(np.concatenate([ahead, sent]), received) - len(ahead)


@pytest.mark.parametrize("first_is_placed", [False, True])
async def test_a_bridge_adds_no_delay_whichever_threads_its_slots_had(phone: Phone, first_is_placed: bool) -> None:
    assert phone.pump.stats().shards == 2
    one, other = await phone.call(), await phone.call()
    slots = (one.taken_media.slot, (other.placed_media if first_is_placed else other.taken_media).slot)
    peers = (one.placed_media.slot, (other.taken_media if first_is_placed else other.placed_media).slot)
    phone.pump.bridge(*slots)
    await phone.audio.ticks(10)
    tracks = [phone.audio.follow(slot) for slot in slots]
    for seed, peer in enumerate(peers):
        phone.pump.write(peer, noise(seed))
    await phone.audio.ticks(70)
    size = min(len(track.received) for track in tracks)
    received, sent = ([getattr(track, name)[:size] for track in tracks] for name in ("received", "sent"))
    # A tick may come between the beginnings of both tracks: it counts in both directions, with opposite signs.
    assert signed_delay(sent[1], received[0]) + signed_delay(sent[0], received[1]) == 0
    for call in (one, other):
        await call.end()


async def test_calls_end_and_slots_are_used_again_after_a_thread_took_them_over(phone: Phone) -> None:
    await phone.audio.ticks(2)
    calls_before = phone.pump.stats().calls
    for _ in range(3):
        calls = [await phone.call() for _ in range(2)]
        phone.pump.bridge(calls[0].taken_media.slot, calls[1].placed_media.slot)
        await phone.audio.ticks(3)
        for call in calls:
            await call.end()
    await phone.audio.ticks(2)
    assert phone.pump.stats().calls == calls_before
    call = await phone.call()
    heard = phone.audio.follow(call.taken_media.slot)
    phone.pump.write(call.placed_media.slot, noise(1))
    await phone.audio.ticks(30)
    assert np.abs(heard.received.astype(np.int32)).max() > 3000
    await call.end()
