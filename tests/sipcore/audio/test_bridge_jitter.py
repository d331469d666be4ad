"""Bridged legs over a real network path. Packets come with jitter: no audio is lost except what the jitter buffer
discards because it came too late, and the delay stays bounded. Packets come just too late for a tick: they need not
wait for the next one."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from bench.transfer.markers import NUMBERS, PACKET_BYTES, find_markers, marked_packet
from bench.transfer.phones import RTP_HEADER, delays_ms, received_markers
from bench.transfer.rtp_phones import Packet
from media.audio_port import INFO_ARRIVAL_NS, INFO_TICK_NS
from tests.sipcore.live_call import LiveCall, media_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp

pytestmark = pytest.mark.asyncio(loop_scope="module")

PACKETS = 250
PACKET_MS = 20
FRAME_MS = 10
"""Of the jitter buffer. A marker that lies in two frames is lost with either: one that is discarded takes two markers
with it at most, its own and the one that its replacement divides."""
BEGINNING = 6
"""Markers that may be lost while the jitter buffer grows at the beginning: its insertions divide them."""
LONGEST_DELAY_MS = 100
"""Beyond the jitter: the wait for a tick, the jitter buffer and the concealment of losses."""
SETTLED_TICKS = 50
"""From the beginning of a bridge on: the phase of its ticks has been chosen."""
LAST_PACKETS_S = 2.0
"""Longest wait for what was sent last."""


class JitteryPhone:
    """Sends marked packets, each up to `jitter_ms` after its time, and keeps what it receives. `before_tick_ms`: the
    time of each packet is so long before a multiple of 20 ms, at which slots without a bridge have their ticks."""

    def __init__(self, call: LiveCall, jitter_ms: int, before_tick_ms: float | None = None) -> None:
        chance = random.Random(call.media.slot + jitter_ms)
        self.sent: list[tuple[int, int]] = []
        """Time (CLOCK_REALTIME, ns) at which a packet would have been sent without jitter, and its number."""
        self.received: list[Packet] = []
        self.late_ms = 0.0
        """The most that a packet was sent behind its time: the machine is busy."""
        self._raw = call.raw
        self._socket = socket.socket(fileno=os.dup(call.raw.rtp.transport.get_extra_info("socket").fileno()))
        self._target = ("127.0.0.1", media_port(call.answer.body))
        self._before_tick_ms = before_tick_ms
        self._late_s = [chance.uniform(0, jitter_ms / 1000) for _ in range(PACKETS)]

    async def talk(self) -> None:
        """Sends all packets, and waits for as many."""
        keeping = asyncio.create_task(self._keep())
        thread = threading.Thread(target=self._send)
        thread.start()
        try:
            await asyncio.to_thread(thread.join)
            await asyncio.wait((keeping,), timeout=LAST_PACKETS_S)
        finally:
            keeping.cancel()
            self._socket.close()

    def _send(self) -> None:
        begun, period = time.monotonic() + PACKET_MS / 1000, PACKET_MS / 1000
        if self._before_tick_ms is not None:
            begun += (-self._before_tick_ms / 1000 - begun) % period
        begun_ns = time.time_ns() + int((begun - time.monotonic()) * 1e9)
        due = sorted((at * PACKET_MS / 1000 + self._late_s[at], at) for at in range(PACKETS))
        for at_s, at in due:
            time.sleep(max(0.0, begun + at_s - time.monotonic()))
            self.late_ms = max(self.late_ms, (time.monotonic() - begun - at_s) * 1000)
            packet = Rtp(0, at, at * PACKET_BYTES, marked_packet(at % NUMBERS))
            self._socket.sendto(packet.pack(), self._target)
        self.sent = [(begun_ns + at * PACKET_MS * 1_000_000, at % NUMBERS) for at in range(PACKETS)]

    async def _keep(self) -> None:
        last, numbers = (PACKETS - 1) % NUMBERS, []
        while not self.sent or last not in numbers:
            packet = await self._raw.next_rtp_bytes()
            self.received.append((time.time_ns(), packet))
            numbers = find_markers(packet[RTP_HEADER:])[1].tolist()


@pytest_asyncio.fixture(loop_scope="module")
async def raws(phone: Phone) -> AsyncIterator[tuple[RawPhone, RawPhone]]:
    async with RawPhone(phone.target) as one, RawPhone(phone.target) as other:
        yield one, other


@pytest.mark.parametrize("jitter_ms", [20, 40])
async def test_jitter_costs_late_packets_alone_and_bounded_delay(
    phone: Phone, raws: tuple[RawPhone, RawPhone], jitter_ms: int
) -> None:
    calls = [await LiveCall.make(phone, raw) for raw in raws]
    phone.pump.bridge(calls[0].media.slot, calls[1].media.slot)
    one, other = (JitteryPhone(call, jitter_ms) for call in calls)
    try:
        await asyncio.gather(one.talk(), other.talk())
        qualities = [call.leg.quality() for call in calls]
    finally:
        phone.pump.unbridge(calls[0].media.slot)
        for call in calls:
            await call.end()
    for sender, receiver, quality in ((one, other, qualities[0]), (other, one, qualities[1])):
        found = received_markers(receiver.received)
        delays = delays_ms(sender.sent, found)
        assert quality.received.packets == PACKETS
        assert quality.received.lost == quality.foreign == quality.malformed == 0
        assert PACKETS - len(delays) <= 2 * quality.discarded_ms / FRAME_MS + BEGINNING
        assert len(found) == len(delays), "no marker that was not sent"
        assert max(delays) < jitter_ms + LONGEST_DELAY_MS + sender.late_ms


async def test_packets_just_too_late_for_a_tick_wait_for_no_whole_tick(
    phone: Phone, raws: tuple[RawPhone, RawPhone]
) -> None:
    calls = [await LiveCall.make(phone, raw) for raw in raws]
    tracks = [phone.audio.follow(call.media.slot) for call in calls]
    phone.pump.bridge(calls[0].media.slot, calls[1].media.slot)
    try:
        talks = [JitteryPhone(call, 0, before_tick_ms=0.3).talk() for call in calls]
        await asyncio.gather(*talks, phone.audio.ticks(PACKETS))
    finally:
        phone.pump.unbridge(calls[0].media.slot)
        for call in calls:
            await call.end()
    for track in tracks:
        talking = track.info[SETTLED_TICKS:PACKETS]
        assert np.median([row[INFO_TICK_NS] - row[INFO_ARRIVAL_NS] for row in talking]) < PACKET_MS / 2 * 1e6
