"""DTMF on the wire: each received digit is reported once, by RFC 4733 or SIP INFO, and sent digits arrive."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest
import pytest_asyncio

from media.dtmf.keys import DtmfMethod
from sipcore.dialogs.leg import Leg
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.tones import from_mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("G722", "PCMU"), max_calls=20)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


Keys = asyncio.Queue[tuple[str, DtmfMethod]]


def keys_of(leg: Leg) -> Keys:
    """A queue of the digits that the leg reports from now on."""
    keys: Keys = asyncio.Queue()
    leg.on_digit = lambda digit, way: keys.put_nowait((digit, way))
    return keys


async def first_of(keys: Keys, count: int) -> list[tuple[str, DtmfMethod]]:
    """The first digits, each within 5 s; no more may follow."""
    got = [await asyncio.wait_for(keys.get(), 5) for _ in range(count)]
    assert keys.empty()
    return got


async def send_events(raw: RawPhone, presses: Sequence[Sequence[tuple[int, int, int]]]) -> None:
    """Send RFC 4733 packets, 20 ms apart; each event is a list of event, duration and E bit."""
    sequence = 0
    for number, press in enumerate(presses):
        for event, duration, end in press:
            payload = bytes([event, end << 7 | 10]) + duration.to_bytes(2, "big")
            raw.send_rtp(Rtp(101, sequence, 5000 * (number + 1), payload, marker=duration == 160))
            sequence += 1
            await raw.next_rtp()


def press_of(event: int) -> list[tuple[int, int, int]]:
    """An event of 80 ms with its end sent three times."""
    return [(event, 160, 0), (event, 320, 0), (event, 480, 0), *[(event, 640, 1)] * 3]


async def test_rfc4733_event_with_repeated_end_is_one_digit(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    keys = keys_of(call.leg)
    await send_events(raw, [press_of(event) for event in (1, 1, 11, 9)])
    got = await first_of(keys, 4)
    await call.end()
    assert got == [(digit, "rfc4733") for digit in "11#9"]


@pytest.mark.parametrize("kept", [[0], [2], [3], [4, 5], [0, 5]])
async def test_rfc4733_event_with_lost_packets_is_one_digit(phone: Phone, raw: RawPhone, kept: list[int]) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    keys = keys_of(call.leg)
    presses = [press_of(event) for event in (4, 7)]
    await send_events(raw, [[press[n] for n in kept] for press in presses])
    got = await first_of(keys, 2)
    await call.end()
    assert got == [("4", "rfc4733"), ("7", "rfc4733")]


def info_body(kind: str, text: bytes) -> bytes:
    return text if kind == "dtmf" else b"Signal=" + text + b"\r\nDuration=160\r\n"


@pytest.mark.parametrize("kind", ["dtmf", "dtmf-relay"])
async def test_sip_info_digits_are_read_in_all_formats_of_phones(phone: Phone, raw: RawPhone, kind: str) -> None:
    call = await LiveCall.make(phone, raw)
    keys = keys_of(call.leg)
    for text in (b"7", b"b", b"#", b" *", b"10", b"11", b"15"):
        assert await raw.info(call.dialog, kind, info_body(kind, text)) == 200
    got = await first_of(keys, 7)
    await call.end()
    assert got == [(digit, "info") for digit in "7B#**#D"]


async def test_sip_info_lines_are_read_in_any_order_and_case(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    keys = keys_of(call.leg)
    for body in (b"Duration=160\r\nSignal=3\r\n", b"signal = 4\nduration = 1", b"Signal=5", b"Signal= 6\r\n\r\n"):
        await raw.info(call.dialog, "dtmf-relay", body)
    got = await first_of(keys, 4)
    await call.end()
    assert [digit for digit, _ in got] == ["3", "4", "5", "6"]


@pytest.mark.parametrize("kind", ["dtmf", "dtmf-relay"])
async def test_sip_info_without_a_digit_gets_400(phone: Phone, raw: RawPhone, kind: str) -> None:
    call = await LiveCall.make(phone, raw)
    keys = keys_of(call.leg)
    for text in (b"\xff", b"\x01", b"h", b"<", b"R", b"\xe2\x85\xa3", b"16", b" ", b"\x00", b"123"):
        assert await raw.info(call.dialog, kind, info_body(kind, text)) == 400
    assert await raw.info(call.dialog, kind, info_body(kind, b"8")) == 200
    got = await first_of(keys, 1)
    await call.end()
    assert got == [("8", "info")]


# ---- what we press ----


async def events_until(raw: RawPhone, dialling: asyncio.Task[None]) -> list[Rtp]:
    """All RTP packets until the digits have been sent, and a little longer."""
    packets = []
    while not dialling.done():
        packets.append(await raw.next_rtp())
    return packets + [await raw.next_rtp() for _ in range(5)]


async def test_sent_digits_are_rfc4733_events_of_100_ms_if_negotiated(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    packets = await events_until(raw, asyncio.create_task(call.leg.send_digits("55w#")))
    await call.end()
    events = [packet for packet in packets if packet.kind == 101]
    begins = [packet.timestamp for packet in events if packet.marker]
    assert [packet.payload[0] for packet in events if packet.marker] == [5, 5, 11]
    for begin in begins:
        press = [packet.payload for packet in events if packet.timestamp == begin]
        durations = [int.from_bytes(payload[2:], "big") for payload in press]
        assert durations == [160, 320, 480, 640, 800, 800, 800], "the end is sent three times (RFC 4733, 2.5.1.4)"
        assert [payload[1] >> 7 for payload in press] == [0, 0, 0, 0, 1, 1, 1]
    at = [number for number, packet in enumerate(packets) if packet.marker and packet.kind == 101]
    assert [b - a for a, b in itertools.pairwise(at)] == [10, 35], "200 ms a key, 500 ms a pause"
    assert all(not from_mulaw(packet.payload).any() for packet in packets if packet.kind == 0), "no tones besides"


async def test_rtp_timestamps_advance_in_real_time_during_dtmf(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    packets = await events_until(raw, asyncio.create_task(call.leg.send_digits("123")))
    await call.end()
    sound = [(number, packet) for number, packet in enumerate(packets) if packet.kind == 0]
    (first_at, first), (last_at, last) = sound[0], sound[-1]
    assert last.timestamp - first.timestamp == (last_at - first_at) * 160


async def test_dtmf_follows_earlier_speech_and_precedes_later_speech(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    speech = tone(8000, 500, 0.3)
    phone.pump.write(call.media.slot, speech)
    dialling = asyncio.create_task(call.leg.send_digits("5"))
    await asyncio.sleep(0)
    phone.pump.write(call.media.slot, speech)
    packets = await events_until(raw, dialling)
    packets += [await raw.next_rtp() for _ in range(20)]
    await call.end()
    loud = [packet.kind == 0 and np.abs(from_mulaw(packet.payload)).max() > 1000 for packet in packets]
    keys = [number for number, packet in enumerate(packets) if packet.kind == 101]
    assert sum(loud[: keys[0]]) in (15, 16)
    assert sum(loud[keys[-1] :]) in (15, 16)
    assert not any(loud[keys[0] : keys[0] + 10]), "the pause behind the key too"


async def test_flush_and_pause_do_not_affect_dtmf(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    dialling = asyncio.create_task(call.leg.send_digits("12"))
    await asyncio.sleep(0)
    phone.pump.pause(call.media.slot, True)
    packets = [await raw.next_rtp() for _ in range(5)]
    phone.pump.flush(call.media.slot)
    packets += await events_until(raw, dialling)
    await call.end()
    assert [packet.payload[0] for packet in packets if packet.kind == 101 and packet.marker] == [1, 2]


async def test_cancelled_dtmf_ends_after_the_present_digit(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    dialling = asyncio.create_task(call.leg.send_digits("123456"))
    while (await raw.next_rtp()).kind != 101:
        pass
    dialling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dialling
    packets = [await raw.next_rtp() for _ in range(40)]
    await call.leg.send_digits("7")
    packets += [await raw.next_rtp() for _ in range(10)]
    await call.end()
    assert [packet.payload[0] for packet in packets if packet.kind == 101 and packet.marker] == [7]
    assert sum(packet.payload[0] == 1 for packet in packets if packet.kind == 101) == 6, "it was finished"


async def test_concurrent_dtmf_requests_are_sent_in_turn(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    both = asyncio.gather(call.leg.send_digits("12"), call.leg.send_digits("34"))
    packets = []
    while not both.done():
        packets.append(await raw.next_rtp())
    await call.end()
    assert [packet.payload[0] for packet in packets if packet.kind == 101 and packet.marker] == [1, 2, 3, 4]


@pytest.mark.parametrize("digits", ["", "12x", "1;2", "\u0661", "1" * 65, " - "])
async def test_invalid_digits_are_rejected(phone: Phone, raw: RawPhone, digits: str) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    with pytest.raises(ValueError, match="key"):
        await call.leg.send_digits(digits)
    await call.end()


async def test_dtmf_in_an_ended_call_raises(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    dialling = asyncio.create_task(call.leg.send_digits("1wwwwwwwwww2"))
    await raw.next_rtp()
    await call.end()
    with pytest.raises(ConnectionError):
        await dialling
    with pytest.raises(ConnectionError):
        await call.leg.send_digits("1")
