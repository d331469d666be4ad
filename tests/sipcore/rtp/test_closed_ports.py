"""What a leg learns when nobody listens on its peer's RTP and RTCP ports any more, on real sockets."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from tests.sipcore.live_call import LiveCall, assert_audio_flows, media_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp, RtpDatagrams
from tests.sipcore.raw.raw_rtcp_phone import RtcpPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SILENCE = Rtp(0, 1, 160, b"\xff" * 160)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def until(phone: Phone, condition: Callable[[], bool], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await phone.audio.tick()


async def test_a_closed_rtp_port_is_known_until_a_packet_comes(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    raw.send_rtp(SILENCE)
    await raw.next_rtp()
    await until(phone, lambda: call.leg.rtp_silence_s() > 0.3)
    assert call.leg.rtp_refused_s() == math.inf
    port = raw.rtp.port
    raw.rtp.transport.close()
    await until(phone, lambda: call.leg.rtp_refused_s() < 0.1)
    loop = asyncio.get_running_loop()
    _, raw.rtp = await loop.create_datagram_endpoint(RtpDatagrams, local_addr=(raw.host, port))
    await assert_audio_flows(phone, raw, call.media)
    await until(phone, lambda: call.leg.rtp_refused_s() == math.inf)
    await call.end()


@pytest.mark.parametrize("hold", ["sendonly", "inactive"])
async def test_a_closed_rtcp_port_is_known_on_hold_if_the_peer_has_sent_rtcp(phone: Phone, hold: str) -> None:
    async with RtcpPhone(phone.target) as raw:
        assert isinstance(raw, RtcpPhone)
        call = await LiveCall.make(phone, raw)
        raw.send_rtp(SILENCE)
        raw.send_report()
        await raw.next_rtp()
        await call.send_offer(raw.offer("0", hold))
        raw.rtp.transport.close()
        raw.rtcp.transport.close()
        await until(phone, lambda: call.leg.rtp_refused_s() < math.inf)
        await call.end()


# ---- messages of others ----


def port_unreachable(port: int, about: tuple[str, int]) -> bytes:
    """An ICMP message that a packet from our `port` to that address found nobody there (RFC 792)."""
    ours = socket.inet_aton("127.0.0.1")
    udp = struct.pack(">HHHH", port, about[1], 180, 0)
    sent = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 200, 0, 0x4000, 64, 17, 0, ours, socket.inet_aton(about[0])) + udp
    message = struct.pack(">BBHI", 3, 3, 0, 0) + sent
    total = sum(struct.unpack(f">{len(message) // 2}H", message))
    total = (total & 0xFFFF) + (total >> 16)
    return message[:2] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + message[4:]


@pytest.mark.skipif(os.geteuid() != 0, reason="a raw socket needs root")
async def test_messages_of_others_cost_no_packet_and_tell_nothing_of_a_peer_that_sends(
    phone: Phone, raw: RawPhone
) -> None:
    call = await LiveCall.make(phone, raw)
    raw.send_rtp(SILENCE)
    ours = media_port(call.answer.body)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as attacker:
        first = await raw.next_rtp()
        for number in range(50):
            for about in (raw.rtp.port, raw.rtp.port + 4):
                attacker.sendto(port_unreachable(ours, ("127.0.0.1", about)), ("127.0.0.1", 0))
            raw.send_rtp(Rtp(0, 2 + number, 160 * number, b"\xff" * 160))
            packet = await raw.next_rtp()
            assert packet.sequence == (first.sequence + number + 1) & 0xFFFF
        assert call.leg.stats().unreachable_ns > 0
    raw.send_rtp(Rtp(0, 60, 160 * 60, b"\xff" * 160))
    await until(phone, lambda: call.leg.rtp_refused_s() == math.inf)
    await call.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="a raw socket needs root")
async def test_messages_about_other_ports_do_not_count(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    raw.send_rtp(SILENCE)
    ours = media_port(call.answer.body)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as attacker:
        attacker.sendto(port_unreachable(ours, ("127.0.0.1", raw.rtp.port + 4)), ("127.0.0.1", 0))
        attacker.sendto(port_unreachable(ours, ("127.0.0.9", raw.rtp.port)), ("127.0.0.1", 0))
    for _ in range(20):
        await raw.next_rtp()
        await phone.audio.tick()
    assert call.leg.stats().unreachable_ns == 0
    await call.end()
