"""A network that loses, reorders and delays packets, and a peer whose clock runs at another speed than ours."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import INFO_JITTER_MS
from sipcore.dialogs.leg import Leg, Media
from tests.sipcore.loopback_phone import Phone, Track
from tests.sipcore.raw.raw_phone import Dialog, RawPhone, Rtp
from tests.sipcore.tones import loudest_hz, mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

HZ = 500
SOUND = mulaw(tone(8000, HZ, 0.02))


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


@dataclass
class Line:
    """A call of a raw phone whose packets pass through a simulated network."""

    phone: Phone
    raw: RawPhone
    dialog: Dialog
    leg: Leg
    media: Media
    track: Track
    number: int = 0
    waiting: list[Rtp] = field(default_factory=list)

    @classmethod
    async def of(cls, phone: Phone, raw: RawPhone) -> Line:
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0"))
        leg = await phone.next_leg()
        answering = asyncio.create_task(leg.answer())
        await raw.complete_invite(dialog)
        media = await answering
        return cls(phone, raw, dialog, leg, media, phone.audio.follow(media.slot))

    def next(self) -> Rtp:
        self.number += 1
        return Rtp(0, self.number, self.number * 160, SOUND)

    def buffered_ms(self) -> list[int]:
        """The audio in the jitter buffer, at each reading."""
        return [int(info[INFO_JITTER_MS]) for info in self.track.info]

    async def over(self) -> None:
        await self.raw.bye(self.dialog)
        await asyncio.wait_for(self.leg.ended, 5)
        self.leg.release()


async def test_loss_of_five_percent_is_concealed(phone: Phone, raw: RawPhone) -> None:
    """The audio has no holes, and the statistics have the loss."""
    line = await Line.of(phone, raw)
    chance = random.Random(5)
    lost = {number for number in range(5, 145) if chance.random() < 0.05}
    for number in range(150):
        await raw.next_rtp()
        packet = line.next()
        if number not in lost:
            raw.send_rtp(packet)
        phone.audio.read()
    await phone.audio.ticks(3)
    quality, stats = line.leg.quality(), line.leg.stats()
    await line.over()
    assert quality.received.lost == len(lost) >= 5
    assert quality.received.mos is not None
    assert 3.0 < quality.received.mos < 4.3
    received = line.track.received[1600:-1600]
    levels = np.abs(received[: len(received) // 160 * 160].reshape(-1, 160).astype(np.int32)).max(axis=1)
    assert np.mean(levels > 2000) > 0.98
    assert loudest_hz(received, 8000) == pytest.approx(HZ, abs=5)
    assert stats.over_runs == 0


async def test_swapped_packets_are_reordered(phone: Phone, raw: RawPhone) -> None:
    line = await Line.of(phone, raw)
    for number in range(100):
        await raw.next_rtp()
        line.waiting.append(line.next())
        if number % 6 != 5:
            while line.waiting:
                raw.send_rtp(line.waiting.pop())  # the later one first
        phone.audio.read()
    await phone.audio.ticks(3)
    quality = line.leg.quality()
    await line.over()
    assert quality.received.lost == 0
    assert quality.reordered >= 15
    received = line.track.received[4000:-1600]
    frames = received[: len(received) // 160 * 160].reshape(-1, 160).astype(np.int32)
    assert np.mean(np.abs(frames).max(axis=1) > 2000) > 0.95


async def test_clock_drift_of_the_peer_does_not_accumulate_delay(phone: Phone) -> None:
    """6 % drift as far in 4 s as 200 ppm in 20 minutes: 0.24 s. A fast peer's surplus is dropped little by little, a
    slow one's gaps are filled."""
    async with AsyncExitStack() as stack:
        phones = [await stack.enter_async_context(RawPhone(phone.target)) for _ in range(2)]
        fast, slow = [await Line.of(phone, each) for each in phones]
        for tick in range(200):
            await phone.audio.tick()
            for _ in range(2 if tick % 16 == 5 else 1):
                fast.raw.send_rtp(fast.next())
            if tick % 16 != 5:
                slow.raw.send_rtp(slow.next())
        await phone.audio.ticks(3)
        for line in (fast, slow):
            quality, stats = line.leg.quality(), line.leg.stats()
            buffered = line.buffered_ms()
            assert np.mean(buffered[-50:]) < 190, "what came too fast does not pile up"
            assert stats.over_runs == 0
            assert stats.frames_received > 180
            assert quality.received.lost == 0
            assert loudest_hz(line.track.received[-8000:], 8000) == pytest.approx(HZ, abs=10)
        assert len(fast.track.received) == pytest.approx(len(slow.track.received), abs=3 * 160), (
            "our own clock paces the audio"
        )
        for line in (fast, slow):
            await line.over()


async def test_delay_of_a_burst_after_a_gap_is_recovered(phone: Phone, raw: RawPhone) -> None:
    """The network holds packets for 0.3 s and then delivers them all."""
    line = await Line.of(phone, raw)
    for number in range(150):
        await raw.next_rtp()
        line.waiting.append(line.next())
        if not 40 <= number < 55:
            for packet in line.waiting:
                raw.send_rtp(packet)
            line.waiting.clear()
        phone.audio.read()
    quality = line.leg.quality()
    await line.over()
    assert quality.received.lost == 0
    assert np.mean(line.buffered_ms()[-25:]) < 300
    assert loudest_hz(line.track.received[-4000:], 8000) == pytest.approx(HZ, abs=10)
