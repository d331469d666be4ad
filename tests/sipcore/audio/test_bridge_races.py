"""Bridges begin, end and lose a slot while audio flows in both directions and codecs change: for ThreadSanitizer
(`scripts/sanitize.sh thread`), and that nothing is left of them afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import random

import numpy as np
import pytest

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Call, Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.tones import mulaw

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("G722", "PCMU"), max_calls=300)
"""More slots than one thread of the pump ticks."""
RATE = 16000
ROUNDS = 40


def noise(rate: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Two seconds of noise."""
    return np.random.default_rng(rate).normal(0, 3000, 2 * rate).astype(np.int16)


async def change_bridges(phone: Phone, slots: list[int], rounds: int = ROUNDS) -> None:
    """Bridge and unbridge these slots in random pairs, each for some ticks."""
    chosen = random.Random(1)
    for _ in range(rounds):
        one, other = chosen.sample(slots, 2)
        phone.pump.bridge(one, other)
        await phone.audio.ticks(chosen.randrange(3))
        if chosen.random() < 0.5:
            phone.pump.unbridge(chosen.choice((one, other)))


async def assert_all_ended(phone: Phone) -> None:
    """Assert that the pump's threads have closed every slot."""
    async with asyncio.timeout(5):
        while phone.pump.stats().calls:
            await phone.audio.tick()


def write_noise(phone: Phone, calls: list[Call]) -> None:
    """Both sides of the calls send noise."""
    for call in calls:
        for media in (call.placed_media, call.taken_media):
            phone.pump.write(media.slot, noise(media.rate))


async def test_bridges_change_while_all_slots_receive_and_send(phone: Phone) -> None:
    calls = [await phone.call() for _ in range(3)]
    slots = [media.slot for call in calls for media in (call.placed_media, call.taken_media)]
    write_noise(phone, calls)
    await change_bridges(phone, slots)
    assert not [slot for slot in slots if phone.pump.slot_stats(slot).frames_received < ROUNDS / 2]
    for call in calls:
        await call.end()
    await assert_all_ended(phone)


async def test_a_call_ends_in_each_bridge_while_the_other_one_goes_on(phone: Phone) -> None:
    stays = await phone.call()
    for _ in range(5):
        ends = await phone.call()
        write_noise(phone, [stays, ends])
        phone.pump.bridge(stays.taken_media.slot, ends.placed_media.slot)
        await phone.audio.ticks(2)
        await ends.end()
        with contextlib.suppress(KeyError):
            phone.pump.unbridge(ends.placed_media.slot)
    before = phone.pump.slot_stats(stays.taken_media.slot).frames_sent
    await phone.audio.ticks(5)
    assert phone.pump.slot_stats(stays.taken_media.slot).frames_sent > before
    await stays.end()
    await assert_all_ended(phone)


async def send_noise(raw: RawPhone, stopping: asyncio.Event) -> None:
    """Send a packet of noise for each received one."""
    coded = mulaw(noise(8000)[:1600])
    number = 0
    while not stopping.is_set():
        await raw.next_rtp()
        at = 160 * (number % 10)
        raw.send_rtp(Rtp(0, number + 1000, 160 * number, coded[at : at + 160], number == 0))
        number += 1


async def test_a_narrow_band_call_is_bridged_while_its_stream_is_replaced(phone: Phone) -> None:
    """Re-INVITEs give the slot streams of another codec and rate; the bridge converts the rate."""
    wide = await phone.call()
    async with RawPhone(phone.target) as raw:
        narrow = await LiveCall.make(phone, raw)
        write_noise(phone, [wide])
        stopping = asyncio.Event()
        sending = asyncio.create_task(send_noise(raw, stopping))
        changing = asyncio.create_task(change_bridges(phone, [wide.taken_media.slot, narrow.media.slot]))
        for codec in ("9", "0", "9", "0"):
            await narrow.send_offer(raw.offer(codec))
        await changing
        assert phone.pump.slot_stats(narrow.media.slot).frames_received > 0
        stopping.set()
        await sending
        await narrow.end()
    await wide.end()
    await assert_all_ended(phone)
