"""Inbound calls from a raw phone: RTP, hold, codecs, CANCEL, rejection, and headers of the INVITE."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall, end_call
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.tones import audible_s, delay_of, from_mulaw, loudest_hz, mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("opus", "G722", "PCMU", "PCMA"), max_calls=20)
HZ = 600


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


def packets_of(samples: np.ndarray[tuple[int], np.dtype[np.int16]], ptime: int) -> list[Rtp]:
    size = 8 * ptime
    parts = [samples[at : at + size] for at in range(0, len(samples) - size + 1, size)]
    return [Rtp(0, number, number * size, mulaw(part), number == 0) for number, part in enumerate(parts)]


async def test_rtp_sequence_and_timestamps_continue_during_silence(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    packets = [await raw.next_rtp() for _ in range(10)]
    phone.pump.write(call.media.slot, tone(8000, HZ, 0.1))
    packets += [await raw.next_rtp() for _ in range(15)]
    await call.end()
    assert {(b.sequence - a.sequence) & 0xFFFF for a, b in itertools.pairwise(packets)} == {1}
    assert {(b.timestamp - a.timestamp) & 0xFFFFFFFF for a, b in itertools.pairwise(packets)} == {160}


async def test_received_and_sent_audio_stay_aligned(phone: Phone, raw: RawPhone) -> None:
    """An echo has the same delay at the beginning and at the end of the call."""
    call = await LiveCall.make(phone, raw)
    echoing = asyncio.create_task(raw.echo())
    track = phone.audio.follow(call.media.slot)
    noise = (np.random.default_rng(5).standard_normal(8000 * 3) * 3000).astype(np.int16)
    phone.pump.write(call.media.slot, noise)
    await phone.audio.ticks(150)
    echoing.cancel()
    await call.end()
    assert len(track.received) == len(track.sent)
    delays = [delay_of(track.received[at : at + 4000], track.sent[at : at + 4000]) for at in (4000, 12000, 19000)]
    assert max(delays) - min(delays) <= 330, "the jitter buffer adapts by a frame or two, nothing else moves"
    assert 0 < delays[0] < 0.2 * 8000


async def test_opus_is_offered_and_answered_by_rfc_7587(phone: Phone, raw: RawPhone) -> None:
    sdp = raw.offer("96", "rtpmap:96 opus/48000/2", "fmtp:96 stereo=1;sprop-stereo=1;useinbandfec=1")
    call = await LiveCall.make(phone, raw, sdp)
    first, second = await raw.next_rtp(), await raw.next_rtp()
    await call.end()
    assert "a=rtpmap:96 opus/48000/2" in call.answer.body
    assert "stereo=0" in call.answer.body
    assert (call.media.codec.lower(), call.media.rate) == ("opus", 16000)
    assert first.kind == 96
    assert second.timestamp - first.timestamp == 960, "its RTP clock is 48 kHz whatever the rate"
    assert not second.payload[0] & 0b100, "mono (RFC 6716 3.1)"


async def test_held_call_keeps_its_slot_and_audio_resumes(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    assert not call.leg.on_hold
    hold_changes: list[bool] = []
    call.leg.on_hold_change = hold_changes.append
    for attribute, held in (("sendonly", True), ("sendrecv", False), ("inactive", True), ("sendrecv", False)):
        call.dialog.cseq += 1
        raw.invite(call.dialog, raw.offer("0", attribute))
        await raw.complete_invite(call.dialog)
        await raw.options()
        await phone.audio.ticks(2)
        assert (call.leg.on_hold, hold_changes[-1]) == (held, held), attribute
        assert phone.pump.rate(call.media.slot) == 8000
    assert len(hold_changes) == 4
    track = phone.audio.follow(call.media.slot)
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    phone.pump.write(call.media.slot, tone(8000, HZ, 0.5))
    got = []
    for packet in packets_of(tone(8000, 440, 0.5), 20):
        raw.send_rtp(packet)
        got.append((await raw.next_rtp()).payload)
        phone.audio.read()
    await phone.audio.ticks(3)
    await call.end()
    assert loudest_hz(track.received, 8000) == pytest.approx(440, abs=10)
    assert loudest_hz(from_mulaw(b"".join(got)), 8000) == pytest.approx(HZ, abs=10)


@pytest.mark.parametrize("held_by", ["a=inactive", "c=IN IP4 0.0.0.0"])
async def test_call_that_begins_on_hold_has_audio_after_resume(phone: Phone, raw: RawPhone, held_by: str) -> None:
    dialog = raw.dialog()
    offer = raw.offer("0")
    raw.invite(
        dialog,
        offer.replace("a=fmtp", f"{held_by}\r\na=fmtp")
        if held_by[0] == "a"
        else offer.replace("c=IN IP4 127.0.0.1", held_by),
    )
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    assert (await raw.options()).status == 200
    assert not answering.done()
    assert not leg.ended.done()
    dialog.cseq += 1
    raw.invite(dialog, raw.offer("0"))
    await raw.complete_invite(dialog)
    media = await asyncio.wait_for(answering, 5)
    assert not leg.on_hold
    phone.pump.write(media.slot, tone(8000, HZ, 0.3))
    got = [(await raw.next_rtp()).payload for _ in range(20)]
    await end_call(raw, dialog, leg)
    assert loudest_hz(from_mulaw(b"".join(got)), 8000) == pytest.approx(HZ, abs=10)


async def test_codec_change_by_reinvite_keeps_the_sample_rate_of_the_slot(phone: Phone, raw: RawPhone) -> None:
    sdp = raw.offer("96", "rtpmap:96 opus/48000/2")
    call = await LiveCall.make(phone, raw, sdp)
    call.dialog.cseq += 1
    raw.invite(call.dialog, raw.offer("0"))
    await raw.complete_invite(call.dialog)
    while (await raw.next_rtp()).kind != 0:
        pass
    track = phone.audio.follow(call.media.slot)
    phone.pump.write(call.media.slot, tone(16000, HZ, 0.6))
    got = []
    for packet in packets_of(tone(8000, 440, 0.6), 20):
        raw.send_rtp(packet)
        got.append((await raw.next_rtp()).payload)
        phone.audio.read()
    await phone.audio.ticks(3)
    assert phone.pump.rate(call.media.slot) == call.media.rate == 16000
    await call.end()
    assert loudest_hz(track.received, 16000) == pytest.approx(440, abs=10)
    assert audible_s(track.received, 16000) == pytest.approx(0.6, abs=0.06)
    assert loudest_hz(from_mulaw(b"".join(got)), 8000) == pytest.approx(HZ, abs=10)


async def test_cancel_ends_a_ringing_leg(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer())
    leg = await phone.next_leg()
    await leg.send_ringing()
    while (await raw.next_message()).status != 180:
        pass
    raw.send(raw.request("CANCEL", dialog, branch=branch))
    assert (await raw.final_response("CANCEL")).status == 200
    assert (await raw.final_response("INVITE")).status == 487
    raw.send(raw.request("ACK", dialog, branch=branch))
    end = await asyncio.wait_for(leg.ended, 5)
    assert (end.code, end.by_peer) == (487, True)
    with pytest.raises(ConnectionError, match="487"):
        await leg.answer()
    await leg.hangup()


@pytest.mark.parametrize(("code", "retry_after_s"), [(486, None), (403, None), (603, None), (503, 7)])
async def test_rejected_invite_gets_status_and_retry_after(
    phone: Phone, raw: RawPhone, code: int, retry_after_s: int | None
) -> None:
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer())
    leg = await phone.next_leg()
    await leg.reject(code, retry_after_s)
    refusal = await raw.final_response("INVITE")
    dialog.to = refusal.header("To")
    raw.send(raw.request("ACK", dialog, branch=branch))
    end = await asyncio.wait_for(leg.ended, 5)
    assert refusal.status == end.code == code
    assert refusal.header("Retry-After") == ("" if retry_after_s is None else str(retry_after_s))
    assert not end.by_peer


async def test_offer_without_a_common_codec_gets_488_and_makes_no_leg(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("4", "rtpmap:4 G723/8000"))
    assert (await raw.final_response("INVITE")).status == 488
    await asyncio.sleep(0)
    assert phone.incoming.empty()


async def test_rtp_silence_grows_after_the_caller_has_vanished(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    for packet in packets_of(tone(8000, 440, 0.3), 20):
        raw.send_rtp(packet)
        await raw.next_rtp()
        await phone.audio.tick()
    assert call.leg.rtp_silence_s() < 0.2
    await phone.audio.ticks(30)
    assert call.leg.rtp_silence_s() > 0.4
    await call.end()


async def test_rtp_of_another_source_does_not_reach_a_call(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    port = int(call.answer.body.split("m=audio ")[1].split()[0])
    track = phone.audio.follow(call.media.slot)
    async with RawPhone(phone.target, "127.0.0.3") as unknown_source:
        for packet in packets_of(tone(8000, 440, 0.5), 20):
            unknown_source.rtp.transport.sendto(packet.pack(), ("127.0.0.1", port))
            unknown_source.rtp.transport.sendto(b"\x80" * 3, ("127.0.0.1", port))
            await raw.next_rtp()
            phone.audio.read()
        await phone.audio.ticks(3)
        assert unknown_source.rtp.received.empty(), "nothing is sent to it either"
    await call.end()
    assert np.abs(track.received.astype(int)).max(initial=0) < 100


async def test_refer_without_on_refer_is_declined(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    async with RawPhone(phone.target) as victim:
        raw.send_in_dialog("REFER", call.dialog, Refer_To=f"<sip:victim@127.0.0.1:{victim.sip.port}>")
        assert (await raw.final_response("REFER")).status == 603
        assert (await raw.options()).status == 200
        assert victim.sip.received.empty()
    assert not call.leg.ended.done()
    await call.end()


async def test_hostile_names_are_short_and_printable(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    request = raw.request("INVITE", dialog, body=raw.offer()).replace(
        b'"Raw \\"phone\\""', b'"' + b"\xff\xfe\x07 <script>" + "ж".encode() * 300 + b'"'
    )
    raw.send(request)
    leg = await phone.next_leg()
    await leg.reject(486)
    name = leg.facts.from_addr.display_name
    assert len(name) == 128
    assert name.isprintable()
    name.encode()  # no surrogates
    assert (await raw.final_response("INVITE")).status == 486


async def test_captured_headers_of_an_invite_are_in_its_facts(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer(), headers=("X-Customer: Zoë", "Diversion: <sip:1@h>", "Authorization: Digest x=y"))
    leg = await phone.next_leg()
    assert leg.facts.headers == {"X-Customer": ("Zoë",), "Diversion": ("<sip:1@h>",)}
    await leg.reject(486)
    assert (await raw.final_response("INVITE")).status == 486


async def test_call_id_with_invalid_utf8_is_served(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog, body=raw.offer()).replace(b"Call-ID: raw", b"Call-ID: \xff\xferaw"))
    leg = await phone.next_leg()
    await leg.reject(486)
    assert leg.sip_call_id == "\ufffd\ufffd" + dialog.call_id
    assert (await raw.final_response("INVITE")).status == 486


@pytest.mark.parametrize("by", ["ACK", "RTP", "BYE"])
async def test_a_call_is_established_by_what_shows_that_the_peer_knows_of_its_answer(
    phone: Phone, raw: RawPhone, by: str
) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await asyncio.wait_for(leg.answer(), 5)
    answer = await raw.final_response("INVITE")
    dialog.update_target(answer)
    raw.aim_rtp(answer)
    await phone.audio.ticks(5)
    states = [leg.is_established]
    established = asyncio.create_task(leg.wait_established())
    if by == "RTP":
        for packet in packets_of(tone(8000, HZ, 0.2), 20):
            raw.send_rtp(packet)
            await phone.audio.ticks(1)
    elif by == "ACK":
        raw.acknowledge(dialog, answer)
    if by != "BYE":
        await asyncio.wait_for(established, 5)
    await asyncio.wait_for(asyncio.gather(established, end_call(raw, dialog, leg)), 5)
    assert [*states, leg.is_established] == [False, True]
