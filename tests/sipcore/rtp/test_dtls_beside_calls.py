"""DTLS handshakes take long (RFC 5763), and must not hold up the audio of other calls."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import numpy as np
import pytest
import pytest_asyncio

from bench.transfer.markers import NUMBERS, PACKET_BYTES, find_markers, marked_packet
from sipcore.settings import EndpointSettings
from tests.peers.baresip import Baresip
from tests.sipcore.live_call import LiveCall, media_port
from tests.sipcore.loopback_phone import Phone, Track
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.tones import audible_s, mulaw

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=20, srtp="optional")
HANDSHAKES = 6
PACKET_S = 0.02
LONGEST_HOLE_S = 0.04


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


@contextmanager
def marked_audio(call: LiveCall) -> Iterator[list[float]]:
    """The caller sends a marked packet every 20 ms, by a thread that no work of the event loop holds up. Yields the
    times at which it did."""
    ended = threading.Event()
    sent_at: list[float] = []
    target = ("127.0.0.1", media_port(call.answer.body))
    own = socket.socket(fileno=os.dup(call.raw.rtp.transport.get_extra_info("socket").fileno()))

    def send() -> None:
        begun, sequence = time.monotonic(), 0
        while not ended.wait(max(0.0, begun + sequence * PACKET_S - time.monotonic())):
            packet = Rtp(0, sequence, sequence * PACKET_BYTES, marked_packet(sequence % NUMBERS))
            own.sendto(packet.pack(), target)
            sent_at.append(time.monotonic())
            sequence += 1

    thread = threading.Thread(target=send)
    with own:
        thread.start()
        try:
            yield sent_at
        finally:
            ended.set()
            thread.join()


def longest_hole_s(track: Track) -> float:
    """The longest time, beyond that of a packet, in which no new packet was heard."""
    at, numbers = find_markers(mulaw(track.received))
    new = np.flatnonzero(np.diff(numbers)) + 1
    assert len(new) > 50, "the packets were heard"
    return float(np.diff(at[new]).max()) / 8000 - PACKET_S


@asynccontextmanager
async def no_hole_in_call(phone: Phone, raw: RawPhone) -> AsyncIterator[None]:
    """A call has audio, without holes in either direction, while the block runs."""
    call = await LiveCall.make(phone, raw)
    try:
        with marked_audio(call) as sent_at:
            await phone.audio.ticks(25)
            track = phone.audio.follow(call.media.slot)
            phone.pump.stats(reset=True)
            yield
            await phone.audio.ticks(25)
            _, _, deviation_ms = phone.pump.stats(reset=True).deviation_ms
    finally:
        await call.end()
    late_s = float(np.diff(sent_at).max()) - PACKET_S  # on a busy machine
    assert longest_hole_s(track) <= LONGEST_HOLE_S + late_s
    assert deviation_ms < 1000 * (LONGEST_HOLE_S + late_s)


async def test_dtls_handshakes_hold_up_no_other_call(phone: Phone, raw: RawPhone) -> None:
    async with Baresip("PCMU/8000/1", encryption="dtls_srtp") as baresip, no_hole_in_call(phone, raw):
        for _ in range(HANDSHAKES):
            await baresip.command("dial", phone.uri)
            leg = await phone.next_leg()
            media = await leg.answer()
            assert media.keying == "dtls"
            encrypted = phone.audio.follow(media.slot)
            async with asyncio.timeout(5):
                while not audible_s(encrypted.received, 8000):
                    await phone.audio.tick()
            await leg.hangup()
            await baresip.event("CALL_CLOSED")
            leg.release()


async def test_calls_that_end_during_the_handshake_hold_up_no_other_call(phone: Phone, raw: RawPhone) -> None:
    """Their RTP comes all the while, and PJMEDIA waits for its retransmission timer under the lock that RTP needs."""
    fingerprint = f"a=setup:passive\r\na=fingerprint:SHA-256 {':'.join(['AB'] * 32)}\r\n"
    async with no_hole_in_call(phone, raw), RawPhone(phone.target) as handshaking:
        offer = handshaking.offer("0").replace("RTP/AVP", "UDP/TLS/RTP/SAVP") + fingerprint
        for _ in range(HANDSHAKES):
            call = await LiveCall.make(phone, handshaking, offer)
            with marked_audio(call):
                await phone.audio.ticks(5)
                await call.end()
                await phone.audio.ticks(20)
