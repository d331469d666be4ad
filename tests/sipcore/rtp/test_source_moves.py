"""A call's audio follows its peer, and not another source behind the same address, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.rtp.test_rtp_attacks import (
    FOREIGN_HZ,
    PEER_HZ,
    PRIVATE,
    RATE,
    foreign_level,
    packet,
)
from tests.sipcore.tones import loudest_hz, mulaw

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def other(phone: Phone) -> AsyncIterator[RawPhone]:
    """Another port of the peer's address."""
    async with RawPhone(phone.target) as other:
        yield other


def behind_nat(raw: RawPhone, *attributes: str) -> str:
    return raw.offer("0", *attributes).replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {PRIVATE}")


async def test_other_source_with_sparse_packets_is_not_accepted(phone: Phone, raw: RawPhone, other: RawPhone) -> None:
    """It begins first; its packets are 60 ms apart."""
    call = await LiveCall.make(phone, raw, behind_nat(raw))
    track = phone.audio.follow(call.media.slot)
    other._rtp_target = raw._rtp_target
    for number in range(60):
        if number % 3 == 0:
            other.send_rtp(packet(number, FOREIGN_HZ, ssrc=66))
        raw.send_rtp(packet(number, PEER_HZ))
        await phone.audio.tick()
    assert raw.rtp.received.qsize() > 20
    assert other.rtp.received.empty()
    await call.end()
    assert foreign_level(track.received) < 200
    assert loudest_hz(track.received[-RATE // 2 :], RATE) == pytest.approx(PEER_HZ, abs=10)


async def test_source_that_moves_to_another_port_is_heard_after_1_s(
    phone: Phone, raw: RawPhone, other: RawPhone
) -> None:
    call = await LiveCall.make(phone, raw)
    other._rtp_target = raw._rtp_target
    for number in range(20):
        raw.send_rtp(packet(number, PEER_HZ))
        await phone.audio.tick()
    track = phone.audio.follow(call.media.slot)
    for number in range(20, 100):
        other.send_rtp(packet(number, PEER_HZ))
        await phone.audio.tick()
    assert call.leg.rtp_silence_s() < 0.5
    assert other.rtp.received.qsize() > 15
    await call.end()
    assert loudest_hz(track.received[-RATE // 4 :], RATE) == pytest.approx(PEER_HZ, abs=10)
    assert np.abs(track.received[RATE // 4 : RATE // 2]).max() < 1000


@pytest.mark.parametrize("hold", ["sendonly", "inactive"])
async def test_other_source_is_not_heard_during_and_after_hold(
    phone: Phone, raw: RawPhone, other: RawPhone, hold: str
) -> None:
    call = await LiveCall.make(phone, raw, behind_nat(raw))
    other._rtp_target = raw._rtp_target
    for number in range(25):
        raw.send_rtp(packet(number, PEER_HZ))
        await phone.audio.tick()
    track = phone.audio.follow(call.media.slot)
    for offer in (behind_nat(raw, hold), behind_nat(raw)):
        call.dialog.cseq += 1
        raw.invite(call.dialog, offer)
        await raw.complete_invite(call.dialog)
        for number in range(30):
            other.send_rtp(Rtp(0, number, number * 160, mulaw(np.full(160, 9000, np.int16)), ssrc=66))
            await phone.audio.tick()
    totals, received = phone.pump.rtp_totals(call.media.slot), track.received
    raw.send_rtp(packet(60, PEER_HZ))
    await phone.audio.ticks(3)
    assert phone.pump.rtp_totals(call.media.slot).received == totals.received + 1
    await call.end()
    assert totals.received <= 25
    assert np.abs(received[RATE // 4 :]).max() < 1000
