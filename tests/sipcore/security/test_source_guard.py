"""The source guard: admitted sources, responses without Python, and malformed messages."""

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

UNKNOWN_SOURCE = "127.0.0.2"


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def unknown_source(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target, UNKNOWN_SOURCE) as unknown_source:
        yield unknown_source


def guard_log_lines(phone: Phone) -> list[tuple[str, str, int]]:
    """The log lines of the guard: (event, source, count). Failed TLS connections of earlier tests are none of them."""
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    return [(line["event"], line["source"], line["count"]) for line in logs if line["event"] != "sip.tls_failed"]


async def test_unknown_source_gets_no_response_and_one_log_line(
    phone: Phone, raw: RawPhone, unknown_source: RawPhone
) -> None:
    for method in ("INVITE", "OPTIONS", "REGISTER", "BYE", "ACK", "CANCEL", "MESSAGE"):
        unknown_source.send(unknown_source.request(method, unknown_source.dialog()))
    assert (await raw.options()).status == 200
    assert unknown_source.sip.received.empty()
    assert phone.incoming.empty()
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, 7)]
    assert guard_log_lines(phone) == [], "it is logged once"


async def test_unknown_source_gets_403_if_configured(phone: Phone, raw: RawPhone, unknown_source: RawPhone) -> None:
    from sipcore import _native

    _native.guard_policy(True, True, 10)
    try:
        unknown_source.send(unknown_source.request("ACK", unknown_source.dialog()))
        unknown_source.send(unknown_source.request("INVITE", unknown_source.dialog(), body=unknown_source.offer()))
        unknown_source.send(unknown_source.request("OPTIONS", unknown_source.dialog()))
        assert [(await unknown_source.final_response()).status, (await unknown_source.final_response()).status] == [
            403,
            403,
        ]
        assert unknown_source.sip.received.empty(), "an ACK is never answered"
    finally:
        phone.endpoint.set_accepting(True)


async def test_probe_may_send_options_only(phone: Phone, raw: RawPhone, unknown_source: RawPhone) -> None:
    phone.endpoint.set_sources(["127.0.0.1"], probes=[UNKNOWN_SOURCE])
    try:
        assert (await unknown_source.options()).status == 200
        unknown_source.invite(unknown_source.dialog(), unknown_source.offer())
        assert (await unknown_source.options()).status == 200
        assert unknown_source.sip.received.empty()
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


async def test_503_with_retry_after_while_not_accepting_and_live_calls_continue(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    await answering
    phone.endpoint.set_accepting(False, retry_after_s=33)
    try:
        probe = await raw.options()
        assert (probe.status, probe.header("Retry-After")) == (503, "33")
        second = raw.dialog()
        raw.invite(second, raw.offer("0"))
        refused = await raw.final_response("INVITE")
        assert (refused.status, refused.header("Retry-After")) == (503, "33")
        assert phone.incoming.empty()
        dialog.cseq += 1
        raw.invite(dialog, raw.offer("0", "sendonly"))
        await raw.complete_invite(dialog)
        await raw.bye(dialog)
        assert (await asyncio.wait_for(leg.ended, 5)).by_peer
        leg.release()
    finally:
        phone.endpoint.set_accepting(True)
    assert (await raw.options()).status == 200


async def test_call_continues_after_its_source_was_removed(phone: Phone, raw: RawPhone) -> None:
    dialog, ringing = raw.dialog(), raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    await answering
    branch = raw.invite(ringing, raw.offer("0"))
    second = await phone.next_leg()
    phone.endpoint.set_sources([])
    try:
        dialog.cseq += 1
        raw.invite(dialog, raw.offer("0", "sendonly"))
        await raw.complete_invite(dialog)
        raw.send(raw.request("CANCEL", ringing, branch=branch))
        assert (await raw.final_response("INVITE")).status == 487
        assert (await asyncio.wait_for(second.ended, 5)).by_peer
        forged = raw.dialog()
        forged.to, forged.call_id = dialog.to, dialog.call_id
        raw.send_in_dialog("BYE", forged)  # not with the tag of the call
        await raw.bye(dialog)
        assert (await asyncio.wait_for(leg.ended, 5)).by_peer
        assert raw.sip.received.empty()
    finally:
        phone.endpoint.set_sources(["127.0.0.1"])
        leg.release()
    assert guard_log_lines(phone) == [("sip.unknown_source", "127.0.0.1", 1)]


async def test_retransmitted_invite_is_answered_while_not_accepting(phone: Phone, raw: RawPhone) -> None:
    invite = raw.request("INVITE", raw.dialog(), body=raw.offer("0"))
    raw.send(invite)
    leg = await phone.next_leg()
    await leg.send_ringing()
    while (await raw.next_message()).status != 180:
        pass
    phone.endpoint.set_accepting(False)
    try:
        raw.send(invite)
        assert (await raw.next_message()).status == 180
    finally:
        phone.endpoint.set_accepting(True)
    await leg.reject(486)
    assert (await raw.final_response("INVITE")).status == 486
    assert phone.incoming.empty()


@pytest.mark.parametrize(
    "method", ["SUBSCRIBE", "MESSAGE", "REGISTER", "PUBLISH", "REFER", "NOTIFY", "INFO", "UPDATE", "PRACK", "FOO"]
)
async def test_unsupported_method_outside_of_a_call_gets_405(phone: Phone, raw: RawPhone, method: str) -> None:
    headers = ("Event: presence", "Expires: 60", "Refer-To: <sip:9@127.0.0.1:9>", "Subscription-State: active")
    raw.send(raw.request(method, raw.dialog(), headers=headers))
    answer = await raw.final_response()
    assert (answer.status, answer.header("Allow")) == (405, "INVITE, ACK, CANCEL, BYE, OPTIONS")
    assert (await raw.options()).status == 200
    assert raw.sip.received.empty()


async def test_bye_without_a_call_gets_481(phone: Phone, raw: RawPhone) -> None:
    raw.send(raw.request("BYE", raw.dialog()))
    assert (await raw.final_response("BYE")).status == 481


NAMED = [
    ("c=IN IP4 127.0.0.1", "c=IN IP4 localhost"),
    ("a=rtpmap:0 PCMU/8000", "c=IN IP4 localhost\r\na=rtpmap:0 PCMU/8000"),
    ("a=rtpmap:0 PCMU/8000", "a=rtcp:5000 IN IP4 localhost\r\na=rtpmap:0 PCMU/8000"),
]
"""A name in the place of an address, one that a look-up would find."""


@pytest.mark.parametrize(("address", "name"), NAMED)
async def test_offer_with_a_host_name_gets_488_without_a_lookup(
    phone: Phone, raw: RawPhone, address: str, name: str
) -> None:
    dialog = raw.dialog()
    offer = raw.offer("0")
    assert address in offer
    raw.invite(dialog, offer.replace(address, name))
    refusal = await raw.final_response("INVITE")
    assert (refusal.status, refusal.header("Warning").split()[0]) == (488, "301")
    assert (await raw.options()).status == 200
    assert phone.incoming.empty()
    raw.invite(dialog, offer)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    await answering
    for method in ("INVITE", "UPDATE"):
        dialog.cseq += 1
        raw.send(raw.request(method, dialog, body=offer.replace(address, name)))
        assert (await raw.final_response(method)).status == 488
    await raw.bye(dialog)
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


@pytest.mark.parametrize(("address", "name"), NAMED)
async def test_late_answer_with_a_host_name_ends_the_call(phone: Phone, raw: RawPhone, address: str, name: str) -> None:
    """A caller without an offer answers ours in its ACK."""
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    accepted = await raw.final_response("INVITE")
    dialog.to = accepted.header("To")
    dialog.target = accepted.header("Contact").split("<")[1].split(">")[0]
    raw.send(raw.request("ACK", dialog, body=raw.offer("0").replace(address, name)))
    raw.reply(await raw.next_request("BYE"), "200 OK")
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(answering, 5)


async def test_callees_host_name_in_sdp_is_not_looked_up(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:raw@127.0.0.1:{raw.sip.port}")
    invite = await raw.next_message()
    lines = [line for name in ("Via", "From", "Call-ID", "CSeq") for line in invite.headers(name)]
    body = raw.offer("0").replace("c=IN IP4 127.0.0.1", "c=IN IP4 localhost")
    lines += [f"To: {invite.header('To')};tag=callee", f"Contact: <sip:raw@127.0.0.1:{raw.sip.port}>"]
    lines += ["Content-Type: application/sdp", f"Content-Length: {len(body)}"]
    raw.send(("\r\n".join(["SIP/2.0 200 OK", *lines]) + "\r\n\r\n" + body).encode())
    while not (message := await raw.next_message()).first_line.startswith("BYE"):
        assert message.first_line.startswith(("ACK", "INVITE"))
    bye = [line for name in ("Via", "From", "To", "Call-ID", "CSeq") for line in message.headers(name)]
    raw.send(("\r\n".join(["SIP/2.0 200 OK", *bye, "Content-Length: 0"]) + "\r\n\r\n").encode())
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(leg.wait_connected(), 5)


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


async def test_malformed_messages_are_one_log_line_per_source(
    phone: Phone, raw: RawPhone, unknown_source: RawPhone
) -> None:
    call = await phone.call()
    track = phone.audio.follow(call.taken_media.slot)
    phone.pump.write(call.placed_media.slot, tone(8000, 700, 3.0))
    random = np.random.default_rng(4475)
    for data in TORTURE:
        unknown_source.send(data)
    for number in range(300):
        unknown_source.send(random.bytes(int(random.integers(1, 1400))))
        if number % 20 == 0:  # no more at once than a socket's buffer holds
            assert (await raw.options()).status == 200
    assert (await raw.options()).status == 200
    await phone.audio.ticks(20)
    assert unknown_source.sip.received.empty()
    lines = guard_log_lines(phone)
    assert {source for _, source, _ in lines} == {UNKNOWN_SOURCE}
    assert sorted(event for event, _, _ in lines) in (
        ["sip.garbage"],
        ["sip.garbage", "sip.unknown_source"],
    )
    assert sum(count for event, _, count in lines if event == "sip.garbage") > 250
    assert not call.taken.ended.done()
    assert loudest_hz(track.received[-2000:], 8000) == pytest.approx(700, abs=10)
    await call.end()


async def test_malformed_requests_of_a_known_source_affect_no_call(phone: Phone, raw: RawPhone) -> None:
    """A faulty trunk gets refusals or no response; every leg that it creates can be rejected."""
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


async def test_flood_of_sources_is_counted_in_bounded_memory(phone: Phone, raw: RawPhone) -> None:
    for last in range(100):
        async with RawPhone(phone.target, f"127.0.1.{last + 1}") as one:
            one.send(one.request("OPTIONS", one.dialog()))
    assert (await raw.options()).status == 200
    lines = guard_log_lines(phone)
    assert len(lines) == 65
    assert lines[-1] == ("sip.unknown_source", "further sources", 36)


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)


async def test_unknown_sources_connection_is_closed_at_once(phone: Phone, raw: RawPhone) -> None:
    host, port = phone.target.split(":")
    for _ in range(20):
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(UNKNOWN_SOURCE, 0))
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, 20)]


async def test_slow_tcp_sender_delays_no_other_peer(phone: Phone, raw: RawPhone) -> None:
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


async def test_malformed_data_over_tcp_is_logged_with_its_source(phone: Phone, raw: RawPhone) -> None:
    host, port = phone.target.split(":")
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + b"\0" * 400, b"B" * 9000):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(data + b"\r\n\r\n")
        await writer.drain()
        writer.close()
    call = await phone.call(";transport=tcp")
    await call.end()
    assert {(event, source) for event, source, _ in guard_log_lines(phone)} == {("sip.garbage", "127.0.0.1")}


async def test_calls_over_tcp_have_audio(phone: Phone, raw: RawPhone) -> None:
    call = await phone.call(";transport=tcp")
    track = phone.audio.follow(call.taken_media.slot)
    phone.pump.write(call.placed_media.slot, tone(8000, 900, 0.5))
    await phone.audio.ticks(25)
    await call.end()
    assert loudest_hz(track.received, 8000) == pytest.approx(900, abs=10)
