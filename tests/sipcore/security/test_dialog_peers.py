"""Dialog peers: only the peer, the hosts of its route set and Contact, and known sources may send requests within a
dialog, even if other hosts have seen its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore import _native
from tests.sipcore.live_call import LiveCall, assert_audio_flows, place_call, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Dialog, RawPhone
from tests.sipcore.security.test_source_guard import UNKNOWN_SOURCE, guard_log_lines

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROXY, HOME = "127.0.0.8", "127.0.0.9"
METHODS = ("INVITE", "UPDATE", "INFO", "REFER", "NOTIFY", "OPTIONS", "PRACK", "MESSAGE", "ACK", "BYE", "CANCEL")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.log_guard_events()
    phone.endpoint.set_sources(["127.0.0.1"])
    async with RawPhone(phone.target) as raw:
        yield raw
    phone.endpoint.set_sources(["127.0.0.1"])


@pytest_asyncio.fixture(loop_scope="module")
async def observer(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target, UNKNOWN_SOURCE) as observer:
        yield observer


def seen(dialog: Dialog) -> Dialog:
    """The dialog, as a host that has seen its messages knows it."""
    return Dialog(dialog.call_id, dialog.tag, dialog.to, dialog.target, dialog.cseq + 5)


def send_all_requests(observer: RawPhone, dialog: Dialog) -> int:
    """Send every request that a peer may send within a dialog; returns their number."""
    headers = ("Refer-To: <sip:9@127.0.0.1:9>", "Event: refer", "Subscription-State: active", "RAck: 1 1 INVITE")
    for method in METHODS:
        dialog.cseq += 1
        body = observer.offer("0", "inactive") if method in ("INVITE", "UPDATE") else ""
        observer.send(observer.request(method, dialog, body=body, headers=headers))
    return len(METHODS)


async def test_observer_of_an_inbound_call_cannot_affect_it(phone: Phone, raw: RawPhone, observer: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    sent = send_all_requests(observer, seen(call.dialog))
    await raw.wait_processed()
    assert observer.sip.received.empty()
    assert not call.leg.ended.done()
    assert not call.leg.on_hold
    await assert_audio_flows(phone, raw, call.media)
    await call.end()  # its CSeq is lower than the unknown_source's
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, sent)]


async def test_observer_of_an_outbound_call_cannot_affect_it(phone: Phone, raw: RawPhone, observer: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    callee.answer()
    await asyncio.wait_for(leg.wait_connected(), 5)
    ours = callee.invite.header("From")
    sent = send_all_requests(observer, Dialog(callee.dialog.call_id, "callee", ours, callee.dialog.target, 90))
    await raw.wait_processed()
    assert observer.sip.received.empty()
    assert not leg.ended.done()
    await callee.hang_up()
    await wait_ended(leg)
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, sent)]


async def test_observer_of_a_call_gets_403_as_unknown_sources_do(
    phone: Phone, raw: RawPhone, observer: RawPhone
) -> None:
    call = await LiveCall.make(phone, raw)
    _native.guard_policy(True, True, 10)
    try:
        sent = send_all_requests(observer, seen(call.dialog))
        await raw.wait_processed()
        answers = {(await observer.next_message()).status for _ in range(sent - 1)}
        assert answers == {403}, "to all but the ACK"
        assert observer.sip.received.empty()
    finally:
        phone.endpoint.set_accepting(True)
    await call.end()
    guard_log_lines(phone)


async def test_copied_request_from_another_address_is_no_retransmission(
    phone: Phone, raw: RawPhone, observer: RawPhone
) -> None:
    dialog = raw.dialog()
    branch = raw.branch()
    invite = raw.request("INVITE", dialog, body=raw.offer("0"), branch=branch)
    cancel = raw.request("CANCEL", dialog, branch=branch)
    raw.send(invite)
    leg = await phone.next_leg()
    await leg.send_ringing()
    while (await raw.next_message()).status != 180:
        pass
    observer.send(invite)
    observer.send(cancel)
    await raw.wait_processed()
    assert observer.sip.received.empty()
    assert raw.sip.received.empty()
    assert not leg.ended.done()
    raw.send(invite)
    assert (await raw.next_message()).status == 180
    raw.send(cancel)
    assert (await raw.final_response("INVITE")).status == 487
    await wait_ended(leg)
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, 2)]


NEAR, FAR = "<sip:127.0.0.1;lr>", f"<sip:{PROXY};lr>"


@pytest.mark.parametrize(
    "headers", [(f"Record-Route: {FAR}, {NEAR}",), (f"Record-Route: {NEAR}", f"Record-Route: {FAR}")]
)
async def test_bye_from_another_proxy_of_the_route_set_is_accepted(
    phone: Phone, raw: RawPhone, headers: tuple[str, ...]
) -> None:
    call = await LiveCall.make(phone, raw, headers=headers)
    phone.endpoint.set_sources([])
    async with RawPhone(phone.target, PROXY) as proxy:
        await proxy.bye(call.dialog)
    assert (await wait_ended(call.leg)).by_peer
    assert guard_log_lines(phone) == []


async def test_request_from_the_contact_address_is_accepted(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target, HOME) as home:
        dialog = raw.dialog()
        invite = raw.request("INVITE", dialog, body=raw.offer("0")).decode()
        named = f"Contact: <sip:raw@{raw.host}:{raw.sip.port}>"
        assert named in invite
        raw.send(invite.replace(named, f"Contact: <sip:raw@{HOME}:{home.sip.port}>").encode())
        leg = await phone.next_leg()
        answering = asyncio.create_task(leg.answer())
        await raw.complete_invite(dialog)
        await answering
        phone.endpoint.set_sources([])
        await home.bye(dialog)
    assert (await wait_ended(leg)).by_peer
    assert guard_log_lines(phone) == []


async def test_request_from_another_port_of_a_former_peer_is_accepted(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    phone.endpoint.set_sources([])
    async with RawPhone(phone.target) as moved:
        await moved.bye(call.dialog)
    assert (await wait_ended(call.leg)).by_peer
    assert guard_log_lines(phone) == []


async def test_request_from_a_callee_whose_trunk_was_removed_is_accepted(phone: Phone, raw: RawPhone) -> None:
    """Its Contact names a proxy of its own."""
    async with RawPhone(phone.target, UNKNOWN_SOURCE) as called:
        leg, callee = await place_call(phone, called)
        callee.phone.named = PROXY  # the address in Contact
        callee.answer()
        await asyncio.wait_for(leg.wait_connected(), 5)
        called.send(callee.request("BYE"))
        assert (await called.final_response("BYE")).status == 200
    assert (await wait_ended(leg)).by_peer
    assert guard_log_lines(phone) == []


async def test_probe_cannot_send_requests_within_a_call(phone: Phone, raw: RawPhone, observer: RawPhone) -> None:
    phone.endpoint.set_sources(["127.0.0.1"], probes=[UNKNOWN_SOURCE])
    call = await LiveCall.make(phone, raw)
    observer.send(observer.request("OPTIONS", seen(call.dialog)))
    assert (await observer.options()).status == 200
    assert observer.sip.received.empty()
    await call.end()
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, 1)]


async def test_responses_are_not_sent_to_maddr(phone: Phone, raw: RawPhone) -> None:
    """`maddr` in Via would name a third party (RFC 3261 18.2.2)."""
    async with RawPhone(phone.target, HOME) as other:
        port = f":{raw.sip.port};branch="
        request = raw.request("OPTIONS", raw.dialog()).decode()
        assert port in request
        raw.send(request.replace(port, f":{other.sip.port};maddr={HOME};branch=").encode())
        assert (await raw.final_response("OPTIONS")).status == 200
        assert other.sip.received.empty()
