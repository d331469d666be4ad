"""RTP packets of every length that a peer may request or send, and malformed packets."""

from __future__ import annotations

import itertools
import struct
from collections.abc import AsyncIterator, Callable, Iterator

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.tones import audible_s, loudest_hz, mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("opus", "G722", "PCMU"), max_calls=20)
HZ = 500
MULAW_SILENCE = b"\xff"


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


def purity(samples: Samples, rate: int, hz: float) -> float:
    """The share of the 20 ms frames between the first and the last sound that have that tone and hardly anything
    else."""
    size = rate // 50
    frames = samples[: len(samples) // size * size].reshape(-1, size).astype(np.float64)
    at = np.flatnonzero(np.abs(frames).max(axis=1) > 800)
    frames = frames[at[0] + 1 : at[-1]]
    basis = np.exp(2j * np.pi * hz * np.arange(size) / rate)
    basis = np.stack([basis.real, basis.imag])
    fitted = np.linalg.lstsq(basis.T, frames.T, rcond=None)[0].T @ basis
    return float(np.mean(((frames - fitted) ** 2).sum(axis=1) < 0.05 * (frames**2).sum(axis=1)))


# ---- length ----


def duration_ms(codec: str, payload: bytes) -> float:
    """The duration of a packet. Opus has it in its first byte (RFC 6716 3.1)."""
    if codec != "opus":
        return len(payload) / 8
    configuration, count = payload[0] >> 3, (1, 2, 2, 0)[payload[0] & 3] or payload[1] & 0x3F
    frame = (10, 20, 40, 60)[configuration % 4] if configuration < 12 else (10, 20)[configuration % 2]
    return frame * count


OFFERS = {
    "PCMU": ("0", (), 8),
    "G722": ("9", ("rtpmap:9 G722/8000",), 8),
    "opus": ("96", ("rtpmap:96 opus/48000/2",), 48),
}
"""Payload type, attributes, and ticks of the RTP clock in a millisecond."""


@pytest.mark.parametrize(
    ("codec", "ptime"),
    [*itertools.product(("PCMU", "G722"), (10, 20, 30, 40, 60)), *itertools.product(("opus",), (20, 40, 60))],
)
async def test_packets_have_the_ptime_of_the_peer(phone: Phone, raw: RawPhone, codec: str, ptime: int) -> None:
    """An echo returns them: both directions have even audio."""
    kind, attributes, ticks = OFFERS[codec]
    offer = raw.offer(kind, *attributes, f"ptime:{ptime}", f"maxptime:{ptime}")
    call = await LiveCall.make(phone, raw, offer)
    assert call.media.codec.lower() == codec.lower()
    track = phone.audio.follow(call.media.slot)
    phone.pump.write(call.media.slot, tone(call.media.rate, HZ, 0.8))
    sent: list[Rtp] = []
    for _ in range(1000 // ptime):
        sent.append(await raw.next_rtp())
        raw.send_rtp(sent[-1])
        phone.audio.read()
    await phone.audio.ticks(4)
    totals = phone.pump.rtp_totals(call.media.slot)
    await call.end()
    assert {duration_ms(codec, packet.payload) for packet in sent} == {ptime}
    assert {(b.timestamp - a.timestamp) & 0xFFFFFFFF for a, b in itertools.pairwise(sent)} == {ticks * ptime}
    assert totals.packet_ms == ptime
    assert totals.discarded_ms <= 2 * ptime
    assert loudest_hz(track.received, call.media.rate) == pytest.approx(HZ, abs=10)
    assert audible_s(track.received, call.media.rate) == pytest.approx(0.8, abs=0.1)
    assert purity(track.received, call.media.rate, HZ) > 0.8


async def test_peer_may_send_another_ptime_than_it_requests(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0", "ptime:20"))
    track = phone.audio.follow(call.media.slot)
    sound, at = tone(8000, HZ, 3.0), 0
    for number, ms in enumerate([20] * 10 + [10] * 20 + [30, 60] * 8 + [40, 20] * 6):
        if at <= 160 * number:
            await phone.audio.ticks(max(ms // 20, 1))
        raw.send_rtp(Rtp(0, number, at, mulaw(sound[at : at + 8 * ms])))
        at += 8 * ms
    await phone.audio.ticks(5)
    await call.end()
    assert loudest_hz(track.received, 8000) == pytest.approx(HZ, abs=10)


# ---- comfort noise ----


async def test_comfort_noise_packets_are_neither_played_nor_lost(phone: Phone, raw: RawPhone) -> None:
    """RFC 3389: a silent peer describes its silence now and then."""
    call = await LiveCall.make(phone, raw, raw.offer("0 13", "rtpmap:13 CN/8000"))
    track = phone.audio.follow(call.media.slot)
    sound = mulaw(tone(8000, HZ, 0.02))
    number = 0
    for tick in range(75):
        await raw.next_rtp()
        if tick < 25 or tick >= 50:
            raw.send_rtp(Rtp(0, number, tick * 160, sound, marker=tick == 50))
            number += 1
        elif tick % 5 == 0:
            raw.send_rtp(Rtp(13, number, tick * 160, b"\x30\x60\x40"))
            number += 1
        phone.audio.read()
    await phone.audio.ticks(4)
    quality = call.leg.quality()
    await call.end()
    assert (quality.received.packets, quality.received.lost) == (55, 0)
    assert quality.received.mos is not None
    assert quality.received.mos > 4.3
    quiet = np.abs(track.received[int(8000 * 0.8) : int(8000 * 0.95)].astype(np.int32))
    assert quiet.max() < 500
    assert purity(track.received[:3600], 8000, HZ) > 0.8
    assert purity(track.received[-4000:], 8000, HZ) > 0.8


# ---- odd packets ----


def wrapped(packet: Rtp, *, csrc: int = 0, extension: bytes | None = None, padding: int = 0) -> bytes:
    """The same audio with contributing sources, a header extension (RFC 8285) or padding (RFC 3550 5.1)."""
    data = packet.pack()
    first = 0x80 | csrc | (0x10 if extension is not None else 0) | (0x20 if padding else 0)
    middle = b"".join(struct.pack(">I", 7000 + n) for n in range(csrc))
    if extension is not None:
        middle += struct.pack(">HH", 0xBEDE, len(extension) // 4) + extension
    tail = b"\0" * (padding - 1) + bytes([padding]) if padding else b""
    return bytes([first]) + data[1:12] + middle + data[12:] + tail


def valid_ways() -> Iterator[Callable[[Rtp], bytes]]:
    yield from itertools.cycle(
        (
            lambda packet: wrapped(packet),
            lambda packet: wrapped(packet, csrc=1),
            lambda packet: wrapped(packet, csrc=15),
            lambda packet: wrapped(packet, extension=b"\x10\xff\0\0" * 3),
            lambda packet: wrapped(packet, extension=b""),
            lambda packet: wrapped(packet, padding=4),
            lambda packet: wrapped(packet, csrc=2, extension=b"\x10\xff\0\0", padding=200),
        )
    )


def malformed_packets(packet: Rtp) -> list[bytes]:
    """Packets that claim to be RTP of the peer and are not, or are not as negotiated."""
    data = packet.pack()
    return [
        *(bytes([version << 6]) + data[1:] for version in (0, 1, 3)),
        *(data[:size] for size in (0, 1, 11)),
        b"\x8f" + data[1:40],  # fifteen contributing sources that are not there
        b"\x90" + data[1:12] + b"\xbe\xde\xff\xff" + b"\x11" * 100,  # an extension of 256 KB
        b"\x90" + data[1:14],
        b"\xa0" + data[1:-1] + b"\xff",  # more padding than packet
        b"\xa0" + data[1:-1] + b"\0",
    ]


def packet_of_another_payload_type(packet: Rtp) -> list[bytes]:
    """RTP without the negotiated audio; its sequence number is that of the next packet."""
    noise = np.random.default_rng(packet.sequence).bytes(160)
    return [
        Rtp(kind, packet.sequence, packet.timestamp, noise).pack() for kind in (3, 8, 18, 96, 127)
    ]  # fmt: skip


async def test_malformed_packets_are_dropped_and_valid_ones_are_heard(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    track = phone.audio.follow(call.media.slot)
    sound, way = mulaw(tone(8000, HZ, 1.2)), valid_ways()
    assert raw._rtp_target
    for number in range(60):
        await raw.next_rtp()
        packet = Rtp(0, number, number * 160, sound[number * 160 : (number + 1) * 160])
        for odd in [*malformed_packets(packet), *(packet_of_another_payload_type(packet) if number % 10 == 5 else ())]:
            raw.rtp.transport.sendto(odd, raw._rtp_target)
        raw.rtp.transport.sendto(next(way)(packet), raw._rtp_target)
        phone.audio.read()
    raw.rtp.transport.sendto(b"\x80\x00" + b"\xaa" * 9000, raw._rtp_target)
    raw.rtp.transport.sendto(Rtp(0, 61, 61 * 160, MULAW_SILENCE * 1400).pack(), raw._rtp_target)
    await phone.audio.ticks(10)
    totals = phone.pump.rtp_totals(call.media.slot)
    await call.end()
    assert totals.malformed == 60 * (len(malformed_packets(Rtp(0, 0, 0, b"\0" * 160))) - 1), "an empty datagram is none"
    assert loudest_hz(track.received, 8000) == pytest.approx(HZ, abs=10)
    assert audible_s(track.received, 8000) == pytest.approx(1.2, abs=0.1)
    assert purity(track.received, 8000, HZ) > 0.8


async def test_random_packets_do_not_end_the_call_and_audio_resumes(phone: Phone, raw: RawPhone) -> None:
    """With the peer's SSRC, so that RTP and RTCP are parsed to the end."""
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    random = np.random.default_rng(3550)
    assert raw._rtp_target
    host, port = raw._rtp_target
    raw.send_rtp(Rtp(0, 0, 0, MULAW_SILENCE * 160))
    for number in range(1500):
        head, body = random.bytes(12), random.bytes(int(random.integers(0, 300)))
        first = bytes([0x80 | head[0] & 0x3F])
        if number % 2:
            rtp = first + bytes([int(random.choice([0, 101]))]) + head[2:8] + b"\0\0\x51\x50" + body
            raw.rtp.transport.sendto(rtp, (host, port))
        else:
            rtcp = first + bytes([200 + head[1] % 8]) + head[2:4] + b"\0\0\x51\x50" + body
            raw.rtp.transport.sendto(rtcp, (host, port + 1))
        if number % 50 == 0:
            await phone.audio.tick()
    await phone.audio.ticks(5)
    assert not call.leg.ended.done()
    track = phone.audio.follow(call.media.slot)
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    sound = mulaw(tone(8000, HZ, 0.02))
    for number in range(50):
        await raw.next_rtp()
        raw.send_rtp(Rtp(0, 9000 + number, 90_000_000 + number * 160, sound))
        phone.audio.read()
    totals = phone.pump.rtp_totals(call.media.slot)
    await call.end()
    assert totals.received > 200, "its packets were parsed"
    assert loudest_hz(track.received[-4000:], 8000) == pytest.approx(HZ, abs=10)
