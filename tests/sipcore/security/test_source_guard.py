"""Who is let in, what is answered without the program, and what garbage does: nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.tones import loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

STRANGER = "127.0.0.2"


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def stranger(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target, STRANGER) as stranger:
        yield stranger


def guard_lines(phone: Phone) -> list[tuple[str, str, int]]:
    """What the guard has to say: (event, source, count)."""
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    return [(line["event"], line["source"], line["count"]) for line in logs]


async def test_a_stranger_gets_silence_and_one_line(phone: Phone, raw: RawPhone, stranger: RawPhone) -> None:
    for method in ("INVITE", "OPTIONS", "REGISTER", "BYE", "ACK", "CANCEL", "MESSAGE"):
        stranger.send(stranger.request(method, stranger.dialog()))
    assert (await raw.options()).status == 200
    assert stranger.sip.received.empty()
    assert phone.incoming.empty()
    assert guard_lines(phone) == [("sip.unknown_source", STRANGER, 7)]
    assert guard_lines(phone) == [], "it is said once"


async def test_a_stranger_gets_403_when_so_configured(phone: Phone, raw: RawPhone, stranger: RawPhone) -> None:
    from sipcore import _native

    _native.guard_policy(True, True, 10)
    try:
        stranger.send(stranger.request("ACK", stranger.dialog()))
        stranger.send(stranger.request("INVITE", stranger.dialog(), body=stranger.offer()))
        stranger.send(stranger.request("OPTIONS", stranger.dialog()))
        assert [(await stranger.final()).status, (await stranger.final()).status] == [403, 403]
        assert stranger.sip.received.empty(), "an ACK is never answered"
    finally:
        phone.endpoint.set_accepting(True)


async def test_a_probe_may_ask_options_and_nothing_else(phone: Phone, raw: RawPhone, stranger: RawPhone) -> None:
    phone.endpoint.set_sources(["127.0.0.1"], probes=[STRANGER])
    try:
        assert (await stranger.options()).status == 200
        stranger.invite(stranger.dialog(), stranger.offer())
        assert (await stranger.options()).status == 200
        assert stranger.sip.received.empty()
        assert phone.incoming.empty()
    finally:
        phone.endpoint.set_sources(["127.0.0.1"])


async def test_sources_take_effect_at_once(phone: Phone, raw: RawPhone) -> None:
    assert (await raw.options()).status == 200
    phone.endpoint.set_sources([])
    raw.send(raw.request("OPTIONS", raw.dialog()))
    phone.endpoint.set_sources(["10.1.2.3", "127.0.0.1", "192.168.0.1"])
    replies = {(await raw.options()).header("CSeq") for _ in range(2)}
    assert replies == {"1 OPTIONS"}
    assert raw.sip.received.empty(), "the request of the unknown time stays unanswered"


async def test_503_with_retry_after_while_not_accepting_and_live_calls_go_on(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.accepted(dialog)
    await answering
    phone.endpoint.set_accepting(False, retry_after_s=33)
    try:
        probe = await raw.options()
        assert (probe.status, probe.header("Retry-After")) == (503, "33")
        second = raw.dialog()
        raw.invite(second, raw.offer("0"))
        refused = await raw.final("INVITE")
        assert (refused.status, refused.header("Retry-After")) == (503, "33")
        assert phone.incoming.empty()
        dialog.cseq += 1
        raw.invite(dialog, raw.offer("0", "sendonly"))
        await raw.accepted(dialog)
        await raw.bye(dialog)
        assert (await asyncio.wait_for(leg.ended, 5)).by_peer
        leg.release()
    finally:
        phone.endpoint.set_accepting(True)
    assert (await raw.options()).status == 200


async def test_a_call_goes_on_to_its_end_when_its_source_is_not_known_any_more(phone: Phone, raw: RawPhone) -> None:
    dialog, ringing = raw.dialog(), raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.accepted(dialog)
    await answering
    branch = raw.invite(ringing, raw.offer("0"))
    second = await phone.next_leg()
    phone.endpoint.set_sources([])
    try:
        dialog.cseq += 1
        raw.invite(dialog, raw.offer("0", "sendonly"))
        await raw.accepted(dialog)
        raw.send(raw.request("CANCEL", ringing, branch=branch))
        assert (await raw.final("INVITE")).status == 487
        assert (await asyncio.wait_for(second.ended, 5)).by_peer
        forged = raw.dialog()
        forged.to, forged.call_id = dialog.to, dialog.call_id
        raw.within("BYE", forged)  # not with the tag of the call
        await raw.bye(dialog)
        assert (await asyncio.wait_for(leg.ended, 5)).by_peer
        assert raw.sip.received.empty()
    finally:
        phone.endpoint.set_sources(["127.0.0.1"])
        leg.release()
    assert guard_lines(phone) == [("sip.unknown_source", "127.0.0.1", 1)]


async def test_an_invite_that_rings_already_is_not_refused_when_it_comes_again(phone: Phone, raw: RawPhone) -> None:
    invite = raw.request("INVITE", raw.dialog(), body=raw.offer("0"))
    raw.send(invite)
    leg = await phone.next_leg()
    await leg.send_ringing()
    while (await raw.message()).status != 180:
        pass
    phone.endpoint.set_accepting(False)
    try:
        raw.send(invite)
        assert (await raw.message()).status == 180
    finally:
        phone.endpoint.set_accepting(True)
    await leg.reject(486)
    assert (await raw.final("INVITE")).status == 486
    assert phone.incoming.empty()


@pytest.mark.parametrize(
    "method", ["SUBSCRIBE", "MESSAGE", "REGISTER", "PUBLISH", "REFER", "NOTIFY", "INFO", "UPDATE", "PRACK", "FOO"]
)
async def test_what_we_do_not_do_outside_a_call_is_said(phone: Phone, raw: RawPhone, method: str) -> None:
    headers = ("Event: presence", "Expires: 60", "Refer-To: <sip:9@127.0.0.1:9>", "Subscription-State: active")
    raw.send(raw.request(method, raw.dialog(), headers=headers))
    answer = await raw.final()
    assert (answer.status, answer.header("Allow")) == (405, "INVITE, ACK, CANCEL, BYE, OPTIONS")
    assert (await raw.options()).status == 200
    assert raw.sip.received.empty()


async def test_a_bye_without_a_call_is_told_that_there_is_none(phone: Phone, raw: RawPhone) -> None:
    raw.send(raw.request("BYE", raw.dialog()))
    assert (await raw.final("BYE")).status == 481


NAMED = [
    ("c=IN IP4 127.0.0.1", "c=IN IP4 localhost"),
    ("a=rtpmap:0 PCMU/8000", "c=IN IP4 localhost\r\na=rtpmap:0 PCMU/8000"),
    ("a=rtpmap:0 PCMU/8000", "a=rtcp:5000 IN IP4 localhost\r\na=rtpmap:0 PCMU/8000"),
]
"""A name in the place of an address, one that a look-up would find."""


@pytest.mark.parametrize(("address", "name"), NAMED)
async def test_an_offer_that_names_a_host_is_refused_without_looking_it_up(
    phone: Phone, raw: RawPhone, address: str, name: str
) -> None:
    dialog = raw.dialog()
    offer = raw.offer("0")
    assert address in offer
    raw.invite(dialog, offer.replace(address, name))
    refusal = await raw.final("INVITE")
    assert (refusal.status, refusal.header("Warning").split()[0]) == (488, "301")
    assert (await raw.options()).status == 200
    assert phone.incoming.empty()
    raw.invite(dialog, offer)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.accepted(dialog)
    await answering
    for method in ("INVITE", "UPDATE"):
        dialog.cseq += 1
        raw.send(raw.request(method, dialog, body=offer.replace(address, name)))
        assert (await raw.final(method)).status == 488
    await raw.bye(dialog)
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


@pytest.mark.parametrize(("address", "name"), NAMED)
async def test_an_answer_that_names_a_host_counts_as_none(phone: Phone, raw: RawPhone, address: str, name: str) -> None:
    """A caller without an offer answers ours in its ACK."""
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    accepted = await raw.final("INVITE")
    dialog.to = accepted.header("To")
    dialog.target = accepted.header("Contact").split("<")[1].split(">")[0]
    raw.send(raw.request("ACK", dialog, body=raw.offer("0").replace(address, name)))
    raw.reply(await raw.asked("BYE"), "200 OK")
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(answering, 5)


async def test_a_callee_that_names_a_host_is_not_looked_up(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:raw@127.0.0.1:{raw.sip.port}")
    invite = await raw.message()
    lines = [line for name in ("Via", "From", "Call-ID", "CSeq") for line in invite.headers(name)]
    body = raw.offer("0").replace("c=IN IP4 127.0.0.1", "c=IN IP4 localhost")
    lines += [f"To: {invite.header('To')};tag=callee", f"Contact: <sip:raw@127.0.0.1:{raw.sip.port}>"]
    lines += ["Content-Type: application/sdp", f"Content-Length: {len(body)}"]
    raw.send(("\r\n".join(["SIP/2.0 200 OK", *lines]) + "\r\n\r\n" + body).encode())
    while not (message := await raw.message()).first_line.startswith("BYE"):
        assert message.first_line.startswith(("ACK", "INVITE"))
    bye = [line for name in ("Via", "From", "To", "Call-ID", "CSeq") for line in message.headers(name)]
    raw.send(("\r\n".join(["SIP/2.0 200 OK", *bye, "Content-Length: 0"]) + "\r\n\r\n").encode())
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(leg.connected(), 5)


TORTURE = [
    b"",
    b"\r\n\r\n",
    b"\0",
    b"\xff" * 40,
    b"\r\n\r\n\xff\xfe garbage after line ends",
    b"INVITE",
    b"INVITE sip:100@h",
    b"INVITE sip:100@h SIP/2.0\r\n\r\n",
    b"INVITE sip:100@h SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKx\r\n\r\n",
    b"INVITE sip:100@h SIP/7.0\r\nVia: SIP/7.0/UDP h;branch=z9hG4bKx\r\nContent-Length: 0\r\n\r\n",
    b"INVITE " + b"x" * 20000 + b" SIP/2.0\r\n\r\n",
    b"SIP/2.0 200 OK\r\n\r\n",
    b"SIP/2.0 4294967301 better not break the receiver\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKx\r\n\r\n",
    b"A" * 65000,
]
"""Beginnings, ends and excesses, partly after RFC 4475."""

EDITS = [
    (b"Content-Length: ", b"Content-Length: -99"),
    (b"Content-Length: ", b"Content-Length: 9999"),
    (b"CSeq: 1 INVITE", b"CSeq: 36893488147419103232 INVITE"),
    (b"CSeq: 1 INVITE", b"CSeq: 1 OPTIONS"),
    (b"Max-Forwards: 70", b"Max-Forwards: 300"),
    (b"To: <", b'To: "unterminated <'),
    (b"From: ", b"From: ;;,,;,; "),
    (b"Via: ", b"Via: SIP/2.0/UDP 192.0.2.15;;,;,,,\r\nVia: "),
    (b"Call-ID: ", b"Call-ID:\r\nX: "),
    (b"c=IN IP4 127.0.0.1", b"c=IN IP4 name.invalid"),
    (b"m=audio", b"m=audio 99999999999999999999 RTP/AVP 0\r\nm=audio"),
    (b"a=rtpmap:0 PCMU/8000", b"a=rtpmap:0 PCMU/0\r\na=rtpmap:999999 x/0/99\r\na=ptime:-5"),
    (b"v=0", b"v=0\r\n" + b"a=x\r\n" * 900),
]


async def test_garbage_is_one_line_for_its_source_and_calls_go_on(
    phone: Phone, raw: RawPhone, stranger: RawPhone
) -> None:
    call = await phone.call()
    track = phone.ears.follow(call.taken_media.slot)
    phone.pump.write(call.placed_media.slot, tone(8000, 700, 3.0))
    random = np.random.default_rng(4475)
    for data in TORTURE:
        stranger.send(data)
    for number in range(300):
        stranger.send(random.bytes(int(random.integers(1, 1400))))
        if number % 20 == 0:  # no more at once than a socket's buffer holds
            assert (await raw.options()).status == 200
    assert (await raw.options()).status == 200
    await phone.ears.ticks(20)
    assert stranger.sip.received.empty()
    lines = guard_lines(phone)
    assert {source for _, source, _ in lines} == {STRANGER}
    assert sorted(event for event, _, _ in lines) in (
        ["sip.garbage"],
        ["sip.garbage", "sip.unknown_source"],
    )
    assert sum(count for event, _, count in lines if event == "sip.garbage") > 250
    assert not call.taken.ended.done()
    assert loudest_hz(track.heard[-2000:], 8000) == pytest.approx(700, abs=10)
    await call.end()


async def test_broken_requests_of_a_known_source_end_with_themselves(phone: Phone, raw: RawPhone) -> None:
    """A trunk that speaks badly gets refusals or silence; whatever leg appears can be refused."""
    template = raw.request("INVITE", raw.dialog(), body=raw.offer("0"))
    for old, new in EDITS:
        assert old in template
        fresh = raw.request("INVITE", raw.dialog(), body=raw.offer("0"))
        raw.send(fresh.replace(old, new, 1))
    for cut in range(0, len(template), 37):
        raw.send(template[:cut])
    assert (await raw.options()).status == 200
    while not phone.incoming.empty():
        await phone.incoming.get_nowait().reject(488)
    call = await phone.call()
    await call.end()
    phone.endpoint.log_guard_events()


async def test_a_flood_of_sources_is_counted_but_not_listed_without_bound(phone: Phone, raw: RawPhone) -> None:
    for last in range(100):
        async with RawPhone(phone.target, f"127.0.1.{last + 1}") as one:
            one.send(one.request("OPTIONS", one.dialog()))
    assert (await raw.options()).status == 200
    lines = guard_lines(phone)
    assert len(lines) == 65
    assert lines[-1] == ("sip.unknown_source", "further sources", 36)


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)


async def test_a_strangers_connection_is_closed_at_once(phone: Phone, raw: RawPhone) -> None:
    host, port = phone.target.split(":")
    for _ in range(20):
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(STRANGER, 0))
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
    assert guard_lines(phone) == [("sip.unknown_source", STRANGER, 20)]


async def test_a_slow_tcp_sender_delays_nobody_but_itself(phone: Phone, raw: RawPhone) -> None:
    host, port = phone.target.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = raw.request("OPTIONS", raw.dialog(), via="TCP")
    for start, end in itertools.pairwise([0, 1, 30, 100, len(request) - 1]):
        writer.write(request[start:end])
        await writer.drain()
        assert (await raw.options()).status == 200
    call = await phone.call()
    await call.end()
    writer.write(request[-1:])
    assert (await read_reply(reader)).startswith(b"SIP/2.0 200")
    writer.close()


async def test_two_requests_in_one_tcp_segment_are_both_answered(phone: Phone, raw: RawPhone) -> None:
    host, port = phone.target.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\r\n\r\n" + b"".join(raw.request("OPTIONS", raw.dialog(), via="TCP") for _ in range(2)))
    assert [(await read_reply(reader))[:11] for _ in range(2)] == [b"SIP/2.0 200"] * 2
    writer.close()


async def test_garbage_over_tcp_is_told_with_its_source(phone: Phone, raw: RawPhone) -> None:
    host, port = phone.target.split(":")
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + b"\0" * 400, b"B" * 9000):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(data + b"\r\n\r\n")
        await writer.drain()
        writer.close()
    call = await phone.call(";transport=tcp")
    await call.end()
    assert {(event, source) for event, source, _ in guard_lines(phone)} == {("sip.garbage", "127.0.0.1")}


async def test_calls_over_tcp_carry_sound(phone: Phone, raw: RawPhone) -> None:
    call = await phone.call(";transport=tcp")
    track = phone.ears.follow(call.taken_media.slot)
    phone.pump.write(call.placed_media.slot, tone(8000, 900, 0.5))
    await phone.ears.ticks(25)
    await call.end()
    assert loudest_hz(track.heard, 8000) == pytest.approx(900, abs=10)
