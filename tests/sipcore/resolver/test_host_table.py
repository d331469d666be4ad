"""The host table: requests to a host name go to its targets, and fail at once without an entry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg
from sipcore.resolver.target import SipHostPort, SipTarget, Transport
from tests.peers.ports import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.set_host_table({})
    unknown(phone)
    async with RawPhone(phone.target) as raw:
        yield raw


def target_at(raw: RawPhone, transport: Transport = "udp") -> SipTarget:
    return SipTarget(raw.host, raw.sip.port, transport)


def unknown(phone: Phone) -> list[tuple[str, int]]:
    """Unknown names that were looked up, logged for the first time."""
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    return [(line["host"], line["count"]) for line in logs if line["event"] == "sip.unknown_name"]


async def reject_at(raw: RawPhone, leg: Leg) -> None:
    """The call has reached this phone, which rejects it."""
    callee = await RawCallee.wait_for_invite(raw)
    callee.reject("486 Busy Here")
    assert (await asyncio.wait_for(leg.ended, 5)).code == 486
    leg.release()


def accept(raw: RawPhone, request: Message) -> None:
    """200 to a request within a call."""
    lines = [line for name in ("Via", "From", "To", "Call-ID", "CSeq") for line in request.headers(name)]
    raw.send("\r\n".join(["SIP/2.0 200 OK", *lines, "Content-Length: 0", "", ""]).encode())


async def answered(phone: Phone, raw: RawPhone, dialog: Dialog, invite: bytes) -> Leg:
    """An answered call of the raw phone."""
    raw.send(invite)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    await asyncio.wait_for(answering, 5)
    return leg


async def test_host_name_resolves_to_its_entry(phone: Phone, raw: RawPhone) -> None:
    phone.endpoint.set_host_table({SipHostPort("pbx.example", None, "udp"): [target_at(raw)]})
    leg = await phone.endpoint.call("sip:100@PBX.example.")
    await reject_at(raw, leg)


async def test_port_and_transport_of_a_name_have_separate_entries(phone: Phone, raw: RawPhone) -> None:
    elsewhere = SipTarget("127.0.0.1", free_port(), "udp")
    phone.endpoint.set_host_table(
        {
            SipHostPort("pbx.example", None, "udp"): [elsewhere],
            SipHostPort("pbx.example", 5070, "udp"): [target_at(raw)],
            SipHostPort("pbx.example", 5070, "tcp"): [elsewhere],
        }
    )
    leg = await phone.endpoint.call("sip:100@pbx.example:5070")
    await reject_at(raw, leg)


async def test_second_target_is_tried_when_the_first_is_unreachable(phone: Phone, raw: RawPhone) -> None:
    closed = SipTarget("127.0.0.1", free_port(), "tcp")
    phone.endpoint.set_host_table({SipHostPort("pbx.example", None, "tcp"): [closed, target_at(raw)]})
    leg = await phone.endpoint.call("sip:100@pbx.example;transport=tcp")
    await reject_at(raw, leg)


async def test_call_to_an_unknown_name_fails_at_once_and_is_logged_once(phone: Phone, raw: RawPhone) -> None:
    for _ in range(2):
        with pytest.raises(InviteError):
            await phone.endpoint.call("sip:100@nowhere.example")
    assert unknown(phone) == [("nowhere.example", 2)]
    with pytest.raises(InviteError):
        await phone.endpoint.call("sip:100@nowhere.example")
    assert unknown(phone) == []


async def test_table_is_replaced_at_once(phone: Phone, raw: RawPhone) -> None:
    phone.endpoint.set_host_table({SipHostPort("old.example", None, "udp"): [target_at(raw)]})
    phone.endpoint.set_host_table({SipHostPort("new.example", None, "udp"): [target_at(raw)]})
    with pytest.raises(InviteError):
        await phone.endpoint.call("sip:100@old.example")
    await reject_at(raw, await phone.endpoint.call("sip:100@new.example"))


async def test_invalid_table_is_rejected_and_the_old_one_stays(phone: Phone, raw: RawPhone) -> None:
    phone.endpoint.set_host_table({SipHostPort("pbx.example", None, "udp"): [target_at(raw)]})
    with pytest.raises(ValueError, match="no IP address"):
        phone.endpoint.set_host_table({SipHostPort("a.example", None, "udp"): [SipTarget("b.example", 5060, "udp")]})
    many = {
        SipHostPort(f"n{number}.example", None, "udp"): [SipTarget("192.0.2.1", 5060, "udp")] for number in range(4097)
    }
    with pytest.raises(ValueError, match="at most 4096"):
        phone.endpoint.set_host_table(many)
    await reject_at(raw, await phone.endpoint.call("sip:100@pbx.example"))


async def test_contact_with_an_unknown_host_is_replaced_by_the_source(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    invite = raw.request("INVITE", dialog, body=raw.offer("0")).decode()
    ours = f"<sip:raw@{raw.host}:{raw.sip.port}>"
    leg = await answered(phone, raw, dialog, invite.replace(ours, "<sip:raw@PBX.unknown.example:5080;ob>").encode())
    hanging_up = asyncio.ensure_future(leg.hangup())
    bye = await raw.next_message()
    assert bye.first_line == f"BYE sip:raw@{raw.host}:{raw.sip.port};ob SIP/2.0"
    accept(raw, bye)
    await hanging_up
    await asyncio.wait_for(leg.ended, 5)
    leg.release()
    assert unknown(phone)[0][0] == "pbx.unknown.example"


async def test_record_route_with_an_unknown_host_is_replaced_by_the_source(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    route = "Record-Route: <sip:proxy.unknown.example;lr;x=1>"
    invite = raw.request("INVITE", dialog, body=raw.offer("0"), headers=(route,)).decode()
    ours = f"<sip:raw@{raw.host}:{raw.sip.port}>"
    leg = await answered(phone, raw, dialog, invite.replace(ours, "<sip:raw@behind.unknown.example>").encode())
    hanging_up = asyncio.ensure_future(leg.hangup())
    bye = await raw.next_message()
    assert bye.first_line == "BYE sip:raw@behind.unknown.example SIP/2.0", "the proxy knows what it means"
    assert bye.header("Route") == f"<sip:{raw.host}:{raw.sip.port};lr;x=1>"
    accept(raw, bye)
    await hanging_up
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_contact_with_a_known_host_is_used(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target) as other:
        phone.endpoint.set_host_table({SipHostPort("pbx.example", 5080, "udp"): [target_at(other)]})
        dialog = raw.dialog()
        invite = raw.request("INVITE", dialog, body=raw.offer("0")).decode()
        ours = f"<sip:raw@{raw.host}:{raw.sip.port}>"
        leg = await answered(phone, raw, dialog, invite.replace(ours, "<sip:raw@pbx.example:5080>").encode())
        hanging_up = asyncio.ensure_future(leg.hangup())
        bye = await other.next_message()
        assert bye.first_line == "BYE sip:raw@pbx.example:5080 SIP/2.0"
        accept(other, bye)
        await hanging_up
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_callees_contact_with_an_unknown_host_is_replaced_by_its_address(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:100@{raw.host}:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    contact = f"<sip:raw@{raw.host}:{raw.sip.port}>"
    plain = raw.send
    raw.send = lambda data: plain(data.replace(contact.encode(), b"<sip:raw@callee.unknown.example>"))  # type: ignore[method-assign]
    callee.answer()
    ack = await callee.next_request("ACK")
    assert ack.first_line == f"ACK sip:raw@{raw.host}:{raw.sip.port} SIP/2.0"
    await asyncio.wait_for(leg.wait_connected(), 5)
    hanging_up = asyncio.ensure_future(leg.hangup())
    callee.accept(await callee.next_request("BYE"))
    await hanging_up
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_unknown_names_are_counted_in_bounded_memory(phone: Phone, raw: RawPhone) -> None:
    with capture_logs() as before:
        phone.endpoint.log_guard_events()
    assert not before
    for number in range(50):
        request = raw.request("OPTIONS", raw.dialog()).decode()
        contact = f"<sip:raw@{raw.host}:{raw.sip.port}>"
        raw.send(request.replace(contact, f"<sip:raw@host{number}.flood.example>").encode())
        assert (await raw.final_response("OPTIONS")).status == 200
    assert unknown(phone) == [], "no request is sent to it"
    for number in range(50):
        dialog = raw.dialog()
        request = raw.request("INVITE", dialog, body=raw.offer("0")).decode()
        branch = request.split("branch=")[1].split(";")[0]
        contact = f"<sip:raw@{raw.host}:{raw.sip.port}>"
        raw.send(request.replace(contact, f"<sip:raw@host{number}.flood.example>").encode())
        leg = await phone.next_leg()
        await leg.reject(486)
        assert (await raw.final_response("INVITE")).status == 486
        raw.send(raw.request("ACK", dialog, branch=branch))
    assert len(unknown(phone)) == 32
