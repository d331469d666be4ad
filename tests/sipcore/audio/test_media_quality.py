"""RTP statistics of a call, and its RTCP in both directions, decoded by tshark."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sipcore.audio.call_quality import CallQuality
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Datagrams, RawPhone, Rtp
from tests.sipcore.tones import mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOUND = mulaw(tone(8000, 400, 0.02))
PEER_SSRC = 0x5150


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def ended(call: LiveCall) -> CallQuality:
    """Hang up; the statistics outlive the call until it is released."""
    await call.raw.bye(call.dialog)
    await asyncio.wait_for(call.leg.ended, 5)
    quality = call.leg.quality()
    call.leg.release()
    with pytest.raises(KeyError):
        call.leg.quality()
    return quality


async def send(phone: Phone, raw: RawPhone, numbers: list[int], first: int = 65500) -> None:
    """Send packets with these sequence numbers, one for each received packet."""
    for number in numbers:
        await raw.next_rtp()
        raw.send_rtp(Rtp(0, first + number, number * 160, SOUND))
        phone.audio.read()
    await phone.audio.ticks(2)


@pytest.mark.parametrize(
    ("numbers", "lost", "reordered", "duplicate"),
    [
        (list(range(60)), 0, 0, 0),
        ([n for n in range(60) if n not in (10, 20, 21, 22)], 4, 0, 0),
        ([*range(20), 21, 20, *range(22, 40)], 0, 1, 0),
        ([*range(20), 23, 22, 20, *range(24, 40)], 1, 2, 0),
        ([*range(20), 19, 19, 15, *range(20, 40)], 0, 0, 3),
    ],
    ids=["clean", "lost", "swapped", "late", "twice"],
)
async def test_packets_are_counted_by_sequence_number(
    phone: Phone, raw: RawPhone, numbers: list[int], lost: int, reordered: int, duplicate: int
) -> None:
    """The sequence numbers wrap (RFC 3550 A.1)."""
    call = await LiveCall.make(phone, raw)
    await send(phone, raw, numbers)
    quality = await ended(call)
    assert quality.received.packets == len(numbers)
    assert (quality.received.lost, quality.reordered, quality.duplicate) == (lost, reordered, duplicate)
    assert quality.received.loss == pytest.approx(lost / (max(numbers) + 1))
    assert quality.packets_sent > 0
    assert quality.codec == "PCMU"


async def test_silence_of_the_peer_is_no_loss(phone: Phone, raw: RawPhone) -> None:
    """Its sequence numbers continue, and its timestamps have advanced (RFC 3551 4.1)."""
    call = await LiveCall.make(phone, raw)
    await send(phone, raw, list(range(10)))
    await phone.audio.ticks(25)
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    for number in range(10, 20):
        await raw.next_rtp()
        raw.send_rtp(Rtp(0, 65500 + number, (number + 27) * 160, SOUND, marker=number == 10))
        phone.audio.read()
    await phone.audio.ticks(2)
    quality = await ended(call)
    assert (quality.received.packets, quality.received.lost) == (20, 0)
    assert quality.received.jitter_max_ms < 100


async def test_statistics_continue_after_a_reinvite(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    await send(phone, raw, [n for n in range(20) if n != 5])
    call.dialog.cseq += 1
    raw.invite(call.dialog, raw.offer("8", "rtpmap:8 PCMA/8000"))
    refused = await raw.final_response("INVITE")
    raw.send(raw.request("ACK", call.dialog))
    assert refused.status == 488
    call.dialog.cseq += 1
    raw.invite(call.dialog, raw.offer("0", "sendonly"))
    await raw.complete_invite(call.dialog)
    call.dialog.cseq += 1
    raw.invite(call.dialog, raw.offer("0"))
    await raw.complete_invite(call.dialog)
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    await send(phone, raw, [n for n in range(20) if n != 5], first=3000)
    quality = await ended(call)
    assert (quality.received.packets, quality.received.lost) == (38, 2)


# ---- RTCP ----


def report(ssrc: int, last: int, delay: int, *, lost: int, highest: int, jitter: int) -> bytes:
    """A receiver report of the peer (RFC 3550 6.4.2)."""
    block = struct.pack(">IIIIII", ssrc, 25 << 24 | lost, highest, jitter, last, delay)
    return struct.pack(">BBHI", 0x81, 201, 7, PEER_SSRC) + block


def write_capture(path: Path, packets: list[bytes]) -> None:
    """UDP packets from port 5004 to 5005 in a file of Ethernet frames, as libpcap writes them."""
    lines = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for packet in packets:
        udp = struct.pack(">HHHH", 5004, 5005, 8 + len(packet), 0) + packet
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, b"\x7f\0\0\1", b"\x7f\0\0\1")
        frame = b"\0" * 12 + b"\x08\0" + ip + udp
        lines.append(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
    path.write_bytes(b"".join(lines))


async def judged(path: Path) -> list[dict[str, list[str]]]:
    """tshark's view of each packet: the types of its parts, and its complaints."""
    fields = ("rtcp.pt", "rtcp.version", "_ws.malformed", "_ws.expert.message", "rtcp.senderssrc")
    command = ["tshark", "-r", str(path), "-d", "udp.port==5005,rtcp", "-T", "json", *(f"-e{name}" for name in fields)]
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-3)
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    return [each["_source"]["layers"] for each in json.loads(output)]


async def test_rtcp_is_sent_and_received(phone: Phone, raw: RawPhone, tmp_path: Path) -> None:
    """Ours has the required parts and ends with BYE; the peer's gives its reception statistics and the round trip."""
    loop = asyncio.get_running_loop()
    _, rtcp = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    call = await LiveCall.make(phone, raw, raw.offer("0", f"rtcp:{rtcp.port} IN IP4 127.0.0.1"))
    first = await raw.next_rtp()
    sending = asyncio.create_task(send(phone, raw, list(range(20))))
    ours = [await asyncio.wait_for(rtcp.received.get(), 5)]
    while ours[-1][1] != 200:  # the first one may be from before we sent anything
        ours.append(await asyncio.wait_for(rtcp.received.get(), 5))
    received_at_s = time.monotonic()
    middle, ssrc = struct.unpack(">I", ours[-1][10:14])[0], struct.unpack(">I", ours[-1][4:8])[0]
    await sending
    assert raw._rtp_target
    delay = int((time.monotonic() - received_at_s) * 65536)
    highest = first.sequence + 99
    said = report(ssrc, middle, delay, lost=10, highest=highest, jitter=80)
    rtcp.transport.sendto(said, (raw._rtp_target[0], raw._rtp_target[1] + 1))
    while call.leg.quality().sent is None:
        await phone.audio.tick()
    quality = await ended(call)
    while b"\xcb" not in ours[-1][1::4]:
        ours.append(await asyncio.wait_for(rtcp.received.get(), 5))
    rtcp.transport.close()
    assert quality.sent is not None
    assert (quality.sent.lost, quality.sent.loss) == (10, pytest.approx(0.1, abs=0.01))
    assert quality.sent.jitter_ms == pytest.approx(10.0)
    assert quality.round_trip_ms is not None
    assert 0 <= quality.round_trip_ms < 100, "the peer's own delay is not part of it"
    write_capture(tmp_path / "rtcp.pcap", ours)
    seen = await judged(tmp_path / "rtcp.pcap")
    assert ["200", "202"] in [layers["rtcp.pt"] for layers in seen]
    assert seen[-1]["rtcp.pt"][1:] == ["202", "203"]
    for layers in seen:
        assert layers["rtcp.pt"][:2] in (["200", "202"], ["201", "202"])
        assert "_ws.malformed" not in layers, layers
        assert set(layers["rtcp.version"]) == {"2"}


async def test_jitter_is_measured_at_the_arrival_of_packets(phone: Phone, raw: RawPhone) -> None:
    """Not when the pump takes them, in the statistics and in our RTCP. Every other packet is 6 ms late."""
    loop = asyncio.get_running_loop()
    _, rtcp = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    call = await LiveCall.make(phone, raw, raw.offer("0", f"rtcp:{rtcp.port} IN IP4 127.0.0.1"))
    jitter_ms, before_s, begun_s = 0.0, 0.0, time.monotonic()
    for number in range(100):
        await asyncio.sleep(begun_s + number * 0.02 + number % 2 * 0.006 - time.monotonic())
        raw.send_rtp(Rtp(0, number, number * 160, SOUND))
        now_s = time.monotonic()
        if number:
            jitter_ms += (abs((now_s - before_s) * 1000 - 20) - jitter_ms) / 16
        before_s = now_s
    await phone.audio.ticks(2)
    quality = await ended(call)
    packets: list[bytes] = []
    while not packets or b"\xcb" not in packets[-1][1::4]:
        packets.append(await asyncio.wait_for(rtcp.received.get(), 5))
    rtcp.transport.close()
    block = packets[-1][28:52] if packets[-1][1] == 200 else packets[-1][8:32]
    assert struct.unpack(">I", block[12:16])[0] / 8 == pytest.approx(jitter_ms, abs=1.0)
    assert 4 < quality.received.jitter_max_ms < jitter_ms + 4
    assert quality.received.jitter_ms < quality.received.jitter_max_ms


async def test_rtcp_of_another_source_is_dropped(phone: Phone, raw: RawPhone) -> None:
    """From another port it must at least contain the peer's SSRC, which other sources do not know."""
    call = await LiveCall.make(phone, raw)
    first = await raw.next_rtp()
    await send(phone, raw, list(range(5)))
    assert raw._rtp_target
    forged = report(first.ssrc, 0, 0, lost=90, highest=first.sequence + 99, jitter=80000)
    forged = forged[:4] + b"\0\0\0\1" + forged[8:]
    async with RawPhone(phone.target) as unknown_source:
        for packet in (forged, forged[:8], b"\x81\xc9\xff\xff" + b"\0" * 60, b"\0" * 40, b"\x80"):
            unknown_source.rtp.transport.sendto(packet, (raw._rtp_target[0], raw._rtp_target[1] + 1))
        await phone.audio.ticks(3)
        assert unknown_source.rtp.received.empty()
    assert phone.pump.rtp_totals(call.media.slot).foreign == 3
    quality = await ended(call)
    assert quality.sent is None
    assert quality.malformed == 2
