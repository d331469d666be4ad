"""A slot without RTP: its audio comes from a PCM channel and goes to it, tick by tick."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from sipcore.audio.pcm_channel import MAX_WRITE, PCM_RATE, PcmChannel
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.tones import tone
from tests.trunkline.server_process import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FRAME = 320


@dataclass
class Peer:
    """The far end of a channel, and its slot. `heard`: what it was sent; `clears`: how much of that preceded each
    interruption."""

    phone: Phone
    channel: PcmChannel
    slot: int
    heard: list[bytes] = field(default_factory=list)
    clears: list[int] = field(default_factory=list)

    def read(self) -> None:
        """Take what was sent."""
        block = self.channel.read()
        if block.clear_before:
            self.clears.append(sum(map(len, self.heard)) // 2)
        self.heard.append(block.audio)

    async def ticks(self, count: int, speech: Samples | None = None) -> None:
        """Read, and write a frame of `speech` while there is some, at each tick."""
        for n in range(count):
            await self.phone.audio.tick()
            self.read()
            if speech is not None and len(frame := speech[n * FRAME : (n + 1) * FRAME]):
                self.channel.write(frame.tobytes())

    @property
    def sound(self) -> Samples:
        """All that it was sent."""
        return np.frombuffer(b"".join(self.heard), np.int16)


@pytest_asyncio.fixture(loop_scope="module", params=[False, True], ids=["wideband", "telephone"])
async def peer(phone: Phone, request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    """A channel with its slot."""
    channel, slot = await phone.endpoint.open_pcm_channel(telephone=request.param)
    yield Peer(phone, channel, slot)
    phone.pump.release(slot)


def level_at(sound: Samples, hz: float, rate: int) -> float:
    """Amplitude of one frequency."""
    n = np.arange(len(sound))
    return float(2 * np.abs((sound * np.exp(-2j * np.pi * hz * n / rate)).mean()))


async def test_the_peers_audio_is_received_and_the_written_audio_is_sent_to_it(peer: Peer) -> None:
    rate = peer.phone.pump.rate(peer.slot)
    track = peer.phone.audio.follow(peer.slot)
    peer.phone.pump.write(peer.slot, tone(rate, 700, 0.5, 8000))
    await peer.ticks(40, tone(PCM_RATE, 1000, 0.5, 8000))
    received = track.received[np.flatnonzero(track.received)[0] :][rate // 10 : rate * 4 // 10]
    assert level_at(received, 1000, rate) == pytest.approx(8000, rel=0.05)
    sent = peer.sound[np.flatnonzero(peer.sound)[0] :][PCM_RATE // 10 : PCM_RATE * 4 // 10]
    assert level_at(sent, 700, PCM_RATE) == pytest.approx(8000, rel=0.05)
    assert peer.channel.stats().frames_received == 25


async def test_silence_reaches_the_peer_all_the_time(peer: Peer) -> None:
    peer.read()
    begun = len(peer.sound)
    await peer.ticks(20)
    assert len(peer.sound) - begun in range(19 * FRAME, 22 * FRAME)


async def test_a_telephone_line_loses_what_g711_cannot_carry(phone: Phone) -> None:
    channel, slot = await phone.endpoint.open_pcm_channel(telephone=True)
    peer = Peer(phone, channel, slot)
    track = phone.audio.follow(slot)
    await peer.ticks(40, tone(PCM_RATE, 6000, 0.5, 8000))
    phone.pump.release(slot)
    begun = int(np.flatnonzero(track.received)[0])
    assert level_at(track.received[begun + 400 : begun + 3200], 2000, 8000) < 40, "the alias of 6 kHz"
    assert np.abs(track.received[begun + 400 : begun + 3200]).max() < 200


async def test_a_burst_loses_its_oldest_audio_and_counts_it(peer: Peer) -> None:
    burst = tone(PCM_RATE, 1000, 1.0, 8000)
    for at in range(0, len(burst), FRAME):
        peer.channel.write(burst[at : at + FRAME].tobytes())
    stats = peer.channel.stats()
    assert stats.received_samples_dropped in range(len(burst) - MAX_WRITE - 3 * FRAME, len(burst) - MAX_WRITE + 1)
    await peer.ticks(3)


async def test_quiet_audio_that_comes_too_fast_adds_no_delay(peer: Peer) -> None:
    for _ in range(20):
        peer.channel.write(np.zeros(FRAME, np.int16).tobytes())
    await peer.ticks(5)
    assert peer.channel.stats().received_samples_dropped >= 10 * FRAME


async def test_unread_audio_is_dropped_and_ticks_go_on(peer: Peer) -> None:
    await peer.phone.audio.ticks(40)
    assert len(peer.channel.read().audio) // 2 <= MAX_WRITE
    assert peer.channel.stats().sent_samples_dropped >= 10 * FRAME


async def test_an_interruption_tells_where_the_peer_is_to_clear(peer: Peer) -> None:
    rate = peer.phone.pump.rate(peer.slot)
    peer.phone.pump.write(peer.slot, tone(rate, 700, 2.0, 8000))
    await peer.ticks(10)
    peer.phone.pump.flush(peer.slot)
    await peer.ticks(10)
    assert len(peer.clears) == 1
    after = peer.sound[peer.clears[0] :]
    assert len(after) >= 8 * FRAME
    assert np.abs(after[FRAME:]).max() < 100, "nothing but the fade follows"


async def test_a_flush_without_speech_is_no_interruption(peer: Peer) -> None:
    peer.phone.pump.flush(peer.slot)
    await peer.ticks(3)
    assert not peer.clears


async def test_digits_reach_the_peer_as_tones(peer: Peer) -> None:
    peer.phone.pump.send_dtmf(peer.slot, "5")
    await peer.ticks(12)
    sent = peer.sound[np.flatnonzero(np.abs(peer.sound) > 100)[0] :][: PCM_RATE * 9 // 100]
    assert level_at(sent, 770, PCM_RATE) > 4000
    assert level_at(sent, 1336, PCM_RATE) > 4000


async def test_the_channel_wakes_its_reader(peer: Peer) -> None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    peer.read()
    loop.add_reader(peer.channel.event_fd, woken.set)
    try:
        await asyncio.wait_for(woken.wait(), 2)
    finally:
        loop.remove_reader(peer.channel.event_fd)


async def test_a_channel_is_bridged_with_a_call(phone: Phone, peer: Peer) -> None:
    call = await phone.call()
    track = phone.audio.follow(call.taken_media.slot)
    phone.pump.bridge(peer.slot, call.placed_media.slot)
    await peer.ticks(50, tone(PCM_RATE, 1000, 0.8, 8000))
    assert level_at(track.received[-4000:-1600], 1000, phone.pump.rate(call.taken_media.slot)) > 4000
    await call.end()


async def test_a_channel_survives_its_slot(phone: Phone) -> None:
    channel, slot = await phone.endpoint.open_pcm_channel(telephone=False)
    phone.pump.release(slot)
    await phone.audio.ticks(2)
    channel.write(bytes(640))
    assert isinstance(channel.read().audio, bytes)
    with pytest.raises(KeyError):
        phone.pump.rate(slot)


async def test_more_than_half_a_second_at_once_is_refused(peer: Peer) -> None:
    with pytest.raises(ValueError, match="8000 samples"):
        peer.channel.write(bytes(2 * MAX_WRITE + 2))


async def test_a_cancelled_opening_releases_its_slot(phone: Phone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The PJSIP thread is opening the slot when nobody waits for it any more."""
    open_slot, may_end, slots = PcmChannel.open_slot, threading.Event(), list[int]()

    def open_slowly(channel: PcmChannel) -> int | None:
        slot = open_slot(channel)
        assert slot is not None
        slots.append(slot)
        may_end.wait(10)
        return slot

    def is_open() -> bool:
        try:
            return phone.pump.rate(slots[0]) > 0
        except KeyError:
            return False

    monkeypatch.setattr(PcmChannel, "open_slot", open_slowly)
    opening = asyncio.create_task(phone.endpoint.open_pcm_channel(telephone=False))
    await until(lambda: slots)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert is_open()
    may_end.set()
    await until(lambda: not is_open())
