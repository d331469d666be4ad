"""The RTP source lock under attack: only RTP from the peer's announced or signalling address is heard."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from sipcore import _native
from tests.sipcore.live_call import LiveCall, end_call
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Datagrams, RawPhone, Rtp
from tests.sipcore.tones import from_mulaw, loudest_hz, mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

RATE = 8000
PEER_HZ, FOREIGN_HZ, OUR_HZ = 440, 1700, 600
FOREIGN_SSRC = 0xBAD
PRIVATE = "127.77.0.1"
"""Stands for the address that a peer behind a translator has at home."""


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


@functools.cache
def half_second(hz: float) -> bytes:
    """Half a second of a tone, in PCMU; cached, because a flood needs it a thousand times a second."""
    return mulaw(tone(RATE, hz, 0.5, level=12000))


def packet(number: int, hz: float, ssrc: int = 0x5150) -> Rtp:
    """20 ms of a continuous tone."""
    sound = half_second(hz)
    at = number * 160 % len(sound)
    return Rtp(0, number, number * 160, (sound + sound)[at : at + 160], ssrc=ssrc)


def foreign_level(samples: Samples) -> float:
    """The highest amplitude of the foreign tone in any 40 ms."""
    frames = samples[: len(samples) // 320 * 320].reshape(-1, 320) * np.hanning(320)
    wave = np.exp(-2j * np.pi * FOREIGN_HZ * np.arange(320) / RATE)
    return float(np.abs(frames @ wave).max(initial=0) * 4 / 320)


async def flood(socket: Datagrams, target: tuple[str, int], ssrc: int = FOREIGN_SSRC) -> None:
    """Send the foreign tone at 1,000 packets a second, until cancelled, however late the machine is."""
    sent = [packet(number, FOREIGN_HZ, ssrc).pack() for number in range(500)]
    begun, number = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - begun) * 1000)
        last = min(due, number + 200)  # no more at once than a socket's buffer holds
        while number < last:
            socket.transport.sendto(sent[number % 500], target)
            number += 1
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def attack(host: str, target: tuple[str, int]) -> AsyncIterator[Datagrams]:
    """Another host at that address floods our port; a queue has what we send to it."""
    _, socket = await asyncio.get_running_loop().create_datagram_endpoint(Datagrams, local_addr=(host, 0))
    flooding = asyncio.create_task(flood(socket, target))
    try:
        yield socket
    finally:
        flooding.cancel()
        socket.transport.close()


@dataclass
class PacedPeer:
    """Sends the peer's next packet whenever one of ours is received, so that ours pace it."""

    phone: Phone
    raw: RawPhone
    number: int = 0
    got: bytes = b""

    async def go(self, count: int, hz: float | None = PEER_HZ, ssrc: int = 0x5150) -> None:
        """Exchange that many packets; hz None: the peer is silent."""
        for _ in range(count):
            self.got += (await self.raw.next_rtp()).payload
            if hz is not None:
                self.raw.send_rtp(packet(self.number, hz, ssrc))
            self.number += 1
            self.phone.audio.read()


async def next_port(phone: Phone, raw: RawPhone) -> int:
    """The RTP port of the next call: ports are assigned in turn."""
    call = await LiveCall.make(phone, raw)
    await call.end()
    assert raw._rtp_target
    return raw._rtp_target[1] + 2


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.3"])
async def test_flood_of_foreign_rtp_is_not_heard_and_gets_nothing(phone: Phone, raw: RawPhone, host: str) -> None:
    """Before the answer, before the peer's first packet, and while it speaks."""
    target = ("127.0.0.1", await next_port(phone, raw))
    async with attack(host, target) as attacker:
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0"))
        leg = await phone.next_leg()
        await leg.send_ringing()
        await phone.audio.ticks(10)
        answering = asyncio.create_task(leg.answer())
        await raw.complete_invite(dialog)
        media = await answering
        assert raw._rtp_target == target
        track = phone.audio.follow(media.slot)
        phone.pump.write(media.slot, tone(RATE, OUR_HZ, 3.0))
        talk = PacedPeer(phone, raw)
        await talk.go(5, hz=None)
        await talk.go(50)
        totals = phone.pump.rtp_totals(media.slot)
        await end_call(raw, dialog, leg)
        assert attacker.received.empty()
    assert foreign_level(track.received) < 200
    assert loudest_hz(track.received[-RATE // 2 :], RATE) == pytest.approx(PEER_HZ, abs=10)
    assert loudest_hz(from_mulaw(talk.got[-RATE // 2 :]), RATE) == pytest.approx(OUR_HZ, abs=10)
    assert totals.received == pytest.approx(50, abs=1)
    assert totals.lost == 0
    if host == raw.host:  # else the kernel drops it: what that was is counted when the call is over
        assert totals.foreign > 500


async def test_foreign_tone_is_detectable() -> None:
    """One packet among the peer's."""
    sound = tone(RATE, PEER_HZ, 1.0)
    sound[4000:4160] = tone(RATE, FOREIGN_HZ, 0.02, level=12000)
    assert foreign_level(sound) > 2000
    assert foreign_level(tone(RATE, PEER_HZ, 1.0)) < 50


async def test_another_ssrc_of_the_source_is_not_heard(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    track = phone.audio.follow(call.media.slot)
    talk = PacedPeer(phone, raw)
    await talk.go(3)
    assert raw._rtp_target
    flooding = asyncio.create_task(flood(raw.rtp, raw._rtp_target))
    await talk.go(50)
    flooding.cancel()
    totals = phone.pump.rtp_totals(call.media.slot)
    await call.end()
    assert foreign_level(track.received) < 200
    assert totals.received == pytest.approx(53, abs=1), "the last one may be on its way"
    assert (totals.lost, totals.duplicate) == (0, 0)
    assert totals.foreign > 500


async def test_changed_ssrc_of_the_peer_is_accepted_after_0_2_s(phone: Phone, raw: RawPhone) -> None:
    """A PBX that connects two callers does so, and restarts the sequence numbers."""
    call = await LiveCall.make(phone, raw)
    talk = PacedPeer(phone, raw)
    await talk.go(20)
    talk.number = 40000
    track = phone.audio.follow(call.media.slot)
    await talk.go(40, hz=900, ssrc=0x1234)
    totals = phone.pump.rtp_totals(call.media.slot)
    await call.end()
    assert loudest_hz(track.received[-RATE // 4 :], RATE) == pytest.approx(900, abs=10)
    assert totals.lost == 0
    assert totals.foreign == 0, "dropped packets were the peer's own"
    assert 46 <= totals.received <= 52, "of 60"


async def test_peer_behind_nat_is_heard_and_gets_our_audio(phone: Phone, raw: RawPhone) -> None:
    """Its SDP has a private address; its RTP comes from the address of its SIP."""
    offer = raw.offer("0").replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {PRIVATE}")
    call = await LiveCall.make(phone, raw, offer)
    phone.pump.write(call.media.slot, tone(RATE, OUR_HZ, 3.0))
    track = phone.audio.follow(call.media.slot)
    for number in range(25):  # no packets of ours pace it yet
        raw.send_rtp(packet(number, PEER_HZ))
        await phone.audio.tick()
    talk = PacedPeer(phone, raw, number=25)
    await talk.go(30)
    await call.end()
    assert loudest_hz(track.received[-RATE // 2 :], RATE) == pytest.approx(PEER_HZ, abs=10)
    assert loudest_hz(from_mulaw(talk.got[-RATE // 2 :]), RATE) == pytest.approx(OUR_HZ, abs=10)


async def test_peer_on_another_port_is_accepted_after_its_probation(phone: Phone, raw: RawPhone) -> None:
    """Asymmetric RTP from the announced address: it is heard then, and no other source any more."""
    async with RawPhone(phone.target) as elsewhere:
        call = await LiveCall.make(phone, raw)
        track = phone.audio.follow(call.media.slot)
        assert raw._rtp_target
        for number in range(50):
            elsewhere.rtp.transport.sendto(packet(number, PEER_HZ).pack(), raw._rtp_target)
            await phone.audio.tick()
        totals = phone.pump.rtp_totals(call.media.slot)
        async with attack("127.0.0.1", raw._rtp_target):
            await phone.audio.ticks(30)
        assert not elsewhere.rtp.received.empty(), "we send to where it sends from"
        await call.end()
    assert 24 <= totals.received <= 40, "of 50; the first came during the probation"
    assert totals.foreign == 0, "and were the peer's own"
    assert foreign_level(track.received) < 200


async def test_announced_address_replaces_a_source_that_passed_probation(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target) as elsewhere:
        call = await LiveCall.make(phone, raw)
        assert raw._rtp_target
        for number in range(30):
            elsewhere.rtp.transport.sendto(packet(number, FOREIGN_HZ).pack(), raw._rtp_target)
            await phone.audio.tick()
        flooding = asyncio.create_task(flood(elsewhere.rtp, raw._rtp_target))
        raw.send_rtp(packet(0, PEER_HZ))
        while not raw.rtp.received.empty():
            raw.rtp.received.get_nowait()
        track = phone.audio.follow(call.media.slot)
        talk = PacedPeer(phone, raw, number=1)
        await talk.go(40)
        flooding.cancel()
        await call.end()
    assert foreign_level(track.received[-RATE // 2 :]) < 200
    assert loudest_hz(track.received[-RATE // 2 :], RATE) == pytest.approx(PEER_HZ, abs=10)


async def test_without_symmetric_rtp_audio_is_sent_to_the_address_in_sdp(phone: Phone, raw: RawPhone) -> None:
    _native.rtp_symmetric(False)
    try:
        async with RawPhone(phone.target) as elsewhere:
            call = await LiveCall.make(phone, raw)
            assert raw._rtp_target
            for number in range(30):
                elsewhere.rtp.transport.sendto(packet(number, PEER_HZ).pack(), raw._rtp_target)
                await raw.next_rtp()
            assert elsewhere.rtp.received.empty()
            await call.end()
    finally:
        _native.rtp_symmetric(True)


async def test_a_reinvite_opens_the_lock_for_another_port_of_the_peer(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    await PacedPeer(phone, raw).go(10)
    async with RawPhone(phone.target) as moved:
        moved._rtp_target = raw._rtp_target
        call.dialog.cseq += 1
        raw.invite(call.dialog, moved.offer("0"))
        await raw.complete_invite(call.dialog)
        assert raw._rtp_target
        track = phone.audio.follow(call.media.slot)
        flooding = asyncio.create_task(flood(raw.rtp, raw._rtp_target))
        talk = PacedPeer(phone, moved, number=7000)
        phone.pump.write(call.media.slot, tone(RATE, OUR_HZ, 3.0))
        await talk.go(40)
        flooding.cancel()
        await call.end()
    assert foreign_level(track.received) < 200, "the old port is no source any more"
    assert loudest_hz(track.received[-RATE // 2 :], RATE) == pytest.approx(PEER_HZ, abs=10)
    assert loudest_hz(from_mulaw(talk.got[-RATE // 4 :]), RATE) == pytest.approx(OUR_HZ, abs=10)


async def test_hold_and_resume_keep_the_source_that_passed_probation(phone: Phone, raw: RawPhone) -> None:
    offers = [
        raw.offer("0", attribute).replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {PRIVATE}")
        for attribute in ("sendrecv", "sendonly", "sendrecv")
    ]
    call = await LiveCall.make(phone, raw, offers[0])
    for number in range(25):
        raw.send_rtp(packet(number, PEER_HZ))
        await phone.audio.tick()
    for offer in offers[1:]:
        call.dialog.cseq += 1
        raw.invite(call.dialog, offer)
        await raw.complete_invite(call.dialog)
    before = phone.pump.rtp_totals(call.media.slot)
    raw.send_rtp(packet(25, PEER_HZ))
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    await PacedPeer(phone, raw, number=26).go(15)
    after = phone.pump.rtp_totals(call.media.slot)
    await call.end()
    assert after.foreign == before.foreign
    assert after.received - before.received == pytest.approx(16, abs=1)


async def test_rtcp_before_the_first_rtp_is_not_foreign(phone: Phone, raw: RawPhone) -> None:
    """From another port than the SDP's: its source is not known yet."""
    call = await LiveCall.make(phone, raw)
    assert raw._rtp_target
    report = b"\x80\xc9\x00\x01" + (0x5150).to_bytes(4, "big")
    async with RawPhone(phone.target) as elsewhere:
        elsewhere.rtp.transport.sendto(report, (raw._rtp_target[0], raw._rtp_target[1] + 1))
        await phone.audio.ticks(3)
        assert phone.pump.rtp_totals(call.media.slot).foreign == 0
        await PacedPeer(phone, raw).go(3)
        elsewhere.rtp.transport.sendto(report[:-4] + b"\0\0\0\1", (raw._rtp_target[0], raw._rtp_target[1] + 1))
        await phone.audio.ticks(3)
        assert phone.pump.rtp_totals(call.media.slot).foreign == 1, "now it is known"
    await call.end()
