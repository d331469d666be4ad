"""Outbound INVITEs, with a callee that responds byte by byte."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.invite_error import InviteError, TargetUnreachable
from sipcore.dialogs.leg import Leg, LegEnd
from sipcore.messages.caller_identity import CallerIdentity
from sipcore.messages.headers import NameAddr
from sipcore.settings import EndpointSettings
from tests.peers.ports import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.tones import from_mulaw, loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """The callee."""
    async with RawPhone(phone.target) as raw:
        yield raw


async def place_call(phone: Phone, raw: RawPhone) -> tuple[Leg, RawCallee]:
    """A call whose INVITE has reached the callee."""
    leg = await phone.endpoint.call(f"sip:+49301@127.0.0.1:{raw.sip.port}")
    return leg, await RawCallee.wait_for_invite(raw)


async def wait_ended(leg: Leg) -> LegEnd:
    """Wait for the leg's end and release its slot."""
    end = await asyncio.wait_for(leg.ended, 5)
    leg.release()
    return end


async def test_invite_has_the_given_from_and_call_id(phone: Phone, raw: RawPhone) -> None:
    uri = f"sip:+4930100@127.0.0.1:{raw.sip.port};transport=udp"
    leg = await phone.endpoint.call(uri, caller=NameAddr("+41441", 'Zoë "Z" \\ Co'), sip_call_id="the-call")
    callee = await RawCallee.wait_for_invite(raw)
    assert callee.invite.first_line == f"INVITE {uri} SIP/2.0"
    assert callee.invite.header("Call-ID") == "the-call"
    assert re.search(r";rport(;|$)", callee.invite.header("Via"))
    assert re.fullmatch(r'"Zoë \\"Z\\" \\\\ Co" <sip:\+41441@127\.0\.0\.1>;tag=\S+', callee.invite.header("From"))
    assert callee.invite.header("To").strip("<>") == "sip:+4930100@127.0.0.1"
    assert (leg.sip_call_id, leg.facts.direction, leg.facts.to_addr.user) == ("the-call", "outbound", "+4930100")
    callee.reject("486 Busy Here")
    await wait_ended(leg)


async def test_invite_has_p_asserted_identity_and_headers_of_any_length(phone: Phone, raw: RawPhone) -> None:
    long = "v" * 500
    more = [("X-Order", "Käse"), ("Diversion", "<sip:1@h>"), *((f"X-{n}", long) for n in range(4))]
    uri = f"sip:1@127.0.0.1:{raw.sip.port}"
    leg = await phone.endpoint.call(uri, caller=NameAddr("+41441", "Zoë"), headers=more)
    callee = await RawCallee.wait_for_invite(raw)
    assert callee.invite.header("P-Asserted-Identity") == '"Zoë" <sip:+41441@127.0.0.1>'
    assert [(name, callee.invite.header(name)) for name, _ in more] == more
    callee.reject("486 Busy Here")
    await wait_ended(leg)


async def test_a_diverted_invite_shows_its_caller_and_is_asserted_by_the_diverting_number(
    phone: Phone, raw: RawPhone
) -> None:
    own = NameAddr("+41441", "")
    identity = CallerIdentity(NameAddr("+49170", 'Ann\r\nX-Evil: 1"'), own, own, private=True)
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}", caller=identity)
    callee = await RawCallee.wait_for_invite(raw)
    invite = callee.invite
    assert invite.header("From").startswith('"AnnX-Evil: 1\\"" <sip:+49170@127.0.0.1>;tag=')
    assert invite.header("P-Asserted-Identity") == "<sip:+41441@127.0.0.1>"
    assert invite.header("Diversion") == "<sip:+41441@127.0.0.1>;reason=unconditional;counter=1"
    assert invite.header("Privacy") == "id"
    assert invite.headers("X-Evil") == []
    assert leg.facts.from_addr.user == "+49170"
    callee.reject("486 Busy Here")
    await wait_ended(leg)


async def test_from_without_a_display_name_has_only_the_uri(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}", caller=NameAddr("100", ""))
    callee = await RawCallee.wait_for_invite(raw)
    assert callee.invite.header("From").startswith("<sip:100@127.0.0.1>;tag=")
    callee.reject("486 Busy Here")
    await wait_ended(leg)


async def test_outbound_leg_rings_is_answered_and_has_audio_in_both_directions(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    connecting = asyncio.create_task(leg.wait_connected())
    callee.send_trying()
    callee.ring()
    await asyncio.wait_for(leg.ringing, 5)
    assert not leg.answered.done()
    assert not connecting.done()
    callee.answer()
    media = await asyncio.wait_for(connecting, 5)
    await callee.next_request("ACK")
    phone.pump.write(media.slot, tone(8000, 800, 0.4))
    received = from_mulaw(b"".join([(await raw.next_rtp()).payload for _ in range(25)]))
    assert loudest_hz(received, 8000) == pytest.approx(800, abs=10)
    await callee.hang_up()
    end = await wait_ended(leg)
    assert (end.code, end.by_peer) == (200, True)


async def test_early_media_is_audio_without_an_answer(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    connecting = asyncio.create_task(leg.wait_connected())
    callee.ring(raw.offer("0"), "183 Session Progress")
    await asyncio.wait_for(leg.ringing, 5)
    await phone.audio.ticks(5)
    assert leg.has_media
    assert not leg.answered.done()
    assert not connecting.done()
    callee.answer()
    await asyncio.wait_for(connecting, 5)
    assert leg.answered.done()
    hanging_up = asyncio.create_task(leg.hangup())
    await callee.expect_bye()
    await hanging_up
    assert not (await wait_ended(leg)).by_peer


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        ("486 Busy Here", ()),
        ("480 Temporarily Unavailable", ()),
        ("408 Request Timeout", ()),
        ("487 Request Terminated", ()),
        ("404 Not Found", ()),
        ("603 Decline", ()),
        ("503 Service Unavailable", ("Retry-After: 5",)),
        ("302 Moved Temporarily", ("Contact: <sip:elsewhere@127.0.0.1:9>",)),
        ("401 Unauthorized", ('WWW-Authenticate: Digest realm="pbx", nonce="n", algorithm=MD5',)),
        ("407 Proxy Authentication Required", ('Proxy-Authenticate: Digest realm="pbx", nonce="n", algorithm=MD5',)),
    ],
)
async def test_leg_ends_with_the_final_status_of_the_callee(
    phone: Phone, raw: RawPhone, status: str, headers: tuple[str, ...]
) -> None:
    leg, callee = await place_call(phone, raw)
    callee.ring()
    callee.reject(status, *headers)
    await callee.next_request("ACK")
    end = await wait_ended(leg)
    assert (end.code, end.by_peer) == (int(status[:3]), True)
    with pytest.raises(ConnectionError):
        await leg.wait_connected()


async def test_a_redirect_is_not_followed(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    async with RawPhone(phone.target) as elsewhere:
        callee.reject("302 Moved Temporarily", f"Contact: <sip:x@127.0.0.1:{elsewhere.sip.port}>")
        await wait_ended(leg)
        await elsewhere.options()
        assert elsewhere.sip.received.empty()


async def test_hangup_while_ringing_sends_cancel(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    callee.ring()
    await asyncio.wait_for(leg.ringing, 5)
    await leg.hangup()
    await callee.expect_cancel()
    await callee.next_request("ACK")
    end = await wait_ended(leg)
    assert (end.code, end.by_peer) == (487, False)


async def test_answer_that_crosses_the_cancel_gets_bye(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    callee.ring()
    await asyncio.wait_for(leg.ringing, 5)
    await leg.hangup()
    callee.answer()
    await callee.next_request("ACK")
    await callee.expect_bye()
    assert not (await wait_ended(leg)).by_peer
    assert not leg.answered.done()


async def test_cancel_is_sent_only_after_a_provisional_response(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 9.1."""
    leg, callee = await place_call(phone, raw)
    await leg.hangup()
    await wait_ended(leg)
    assert (await callee.next_request("INVITE")).header("Call-ID") == leg.sip_call_id, "it is retransmitted"
    callee.send_trying()
    await callee.expect_cancel()


async def test_latest_status_is_that_of_the_latest_response(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    assert await leg.latest_status() == 0
    callee.send_trying()
    await raw.options()
    assert await leg.latest_status() == 100
    assert not leg.ringing.done()
    callee.ring()
    await asyncio.wait_for(leg.ringing, 5)
    assert await leg.latest_status() == 180
    callee.reject("486 Busy Here")
    await wait_ended(leg)
    assert await leg.latest_status() == 0


async def test_refused_connection_raises_or_ends_the_leg_without_a_status(phone: Phone) -> None:
    """The refusal is known before the INVITE waits for the connection, or after."""
    try:
        leg = await phone.endpoint.call(f"sip:x@127.0.0.1:{free_port()};transport=tcp")
    except TargetUnreachable as refused:
        assert refused.kind == "unreachable"
        assert str(refused) in ("no INVITE could be sent", "no INVITE could be sent: nothing listens there")
        assert phone.endpoint.live_legs == 0
        return
    end = await wait_ended(leg)
    assert (end.code, end.by_peer) == (0, True)


async def test_invite_error_describes_why_no_invite_could_be_sent(phone: Phone) -> None:
    """From loopback no packet can be sent to another network."""
    words = "^no INVITE could be sent: this machine cannot send to that address from where SIP listens$"
    with pytest.raises(InviteError, match=words) as caught:
        await phone.endpoint.call("sip:x@192.0.2.1:5060")
    assert caught.value.kind == "rejected_locally"
    assert phone.endpoint.live_legs == 0


async def test_invite_over_tcp_reaches_the_callee(phone: Phone) -> None:
    invites: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        invites.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        leg = await phone.endpoint.call(f"sip:x@127.0.0.1:{port};transport=tcp")
        assert f"INVITE sip:x@127.0.0.1:{port};transport=tcp SIP/2.0".encode() in await invites.get()
        await leg.hangup()
        await wait_ended(leg)
