"""The source of responses: the target of the request, and known sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.trace.sip_capture import DialogKey
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone, parse
from tests.sipcore.security.test_source_guard import UNKNOWN_SOURCE, guard_log_lines

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """A known source."""
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def other_host(phone: Phone) -> AsyncIterator[RawPhone]:
    """Another source."""
    async with RawPhone(phone.target, UNKNOWN_SOURCE) as other_host:
        yield other_host


def answer(callee: RawCallee, status: str, tag: str) -> bytes:
    """A response to the callee's INVITE with all its identifiers, and media at the callee's port."""
    invite = callee.invite
    kept = [line for name in ("Via", "From", "Call-ID", "CSeq") for line in invite.headers(name)]
    sdp = callee.phone.offer("0") if status.startswith("2") else ""
    about = ["Contact: <sip:x@127.0.0.2>", "Content-Type: application/sdp"] if sdp else []
    to = f"{invite.headers('To')[0]};tag={tag}"
    head = [f"SIP/2.0 {status}", *kept, to, *about, f"Content-Length: {len(sdp)}"]
    return ("\r\n".join(head) + "\r\n\r\n" + sdp).encode()


async def test_only_the_target_and_known_sources_can_respond_to_an_invite(
    phone: Phone, raw: RawPhone, other_host: RawPhone
) -> None:
    leg = await phone.endpoint.call(f"sip:100@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    for status in ("486 Busy Here", "180 Ringing", "200 OK", "302 Moved"):
        other_host.send(answer(callee, status, "evil"))
    assert (await raw.options()).status == 200
    assert not (leg.ended.done() or leg.ringing.done() or leg.answered.done())
    callee.answer()
    await asyncio.wait_for(leg.wait_connected(), 5)
    for status in ("200 OK", "486 Busy Here"):
        for tag in ("evil", "callee"):
            other_host.send(answer(callee, status, tag))
    assert (await raw.options()).status == 200
    assert other_host.sip.received.empty(), "a fork of an unknown source gets neither ACK nor BYE"
    assert not leg.ended.done()
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, 8)]
    phone.endpoint.update_sip_capture()
    trail = phone.endpoint.sip_capture.dialog_trace(DialogKey(leg.sip_call_id, "caller", leg_tag(callee)))
    assert trail is not None
    assert not any(UNKNOWN_SOURCE in kept.message.peer or b"evil" in kept.message.raw for kept in trail)
    await callee.hang_up()
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


def leg_tag(callee: RawCallee) -> str:
    """The From tag of an outbound INVITE."""
    return callee.invite.header("From").partition("tag=")[2]


async def test_target_can_respond_after_its_trunk_was_removed(
    phone: Phone, raw: RawPhone, other_host: RawPhone
) -> None:
    """Its number is removed while it rings; a retransmitted 200 is acknowledged."""
    leg = await phone.endpoint.call(f"sip:100@{UNKNOWN_SOURCE}:{other_host.sip.port}")
    callee = await RawCallee.wait_for_invite(other_host)
    callee.ring()
    callee.answer()
    await asyncio.wait_for(leg.wait_connected(), 5)
    await callee.next_request("ACK")
    callee.answer()
    await callee.next_request("ACK")
    assert guard_log_lines(phone) == []
    await leg.hangup()
    await callee.expect_bye()
    assert (await asyncio.wait_for(leg.ended, 5)).code == 200
    leg.release()


@pytest.mark.parametrize("known", [True, False])
async def test_response_over_our_outbound_connection_is_accepted(phone: Phone, raw: RawPhone, known: bool) -> None:
    phone.endpoint.set_sources(["127.0.0.1"] if known else [])

    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        invite = parse(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer(RawCallee(raw, invite), "486 Busy Here", "callee"))

    server = await asyncio.start_server(busy, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        leg = await phone.endpoint.call(f"sip:100@127.0.0.1:{port};transport=tcp")
        assert (await asyncio.wait_for(leg.ended, 5)).code == 486
        leg.release()
    finally:
        server.close()
        phone.endpoint.set_sources(["127.0.0.1"])
