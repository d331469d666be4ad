"""Who may speak in a dialog: its peer, whom its route set and its Contact name, and known sources. Nobody else,
though they have seen all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore import _native
from tests.sipcore.live_call import LiveCall, assert_sound_flows, ended, placed
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Dialog, RawPhone
from tests.sipcore.security.test_source_guard import STRANGER, guard_lines

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
async def stranger(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target, STRANGER) as stranger:
        yield stranger


def seen(dialog: Dialog) -> Dialog:
    """All that who has seen a call's messages knows of it."""
    return Dialog(dialog.call_id, dialog.tag, dialog.to, dialog.target, dialog.cseq + 5)


def speak(stranger: RawPhone, dialog: Dialog) -> int:
    """Say in it whatever a peer may say; how many requests that were."""
    headers = ("Refer-To: <sip:9@127.0.0.1:9>", "Event: refer", "Subscription-State: active", "RAck: 1 1 INVITE")
    for method in METHODS:
        dialog.cseq += 1
        body = stranger.offer("0", "inactive") if method in ("INVITE", "UPDATE") else ""
        stranger.send(stranger.request(method, dialog, body=body, headers=headers))
    return len(METHODS)


async def test_who_has_seen_a_call_can_do_nothing_to_it(phone: Phone, raw: RawPhone, stranger: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    sent = speak(stranger, seen(call.dialog))
    await raw.settled()
    assert stranger.sip.received.empty()
    assert not call.leg.ended.done()
    assert not call.leg.on_hold
    await assert_sound_flows(phone, raw, call.media)
    await call.over()  # its CSeq is lower than the stranger's
    assert guard_lines(phone) == [("sip.unknown_source", STRANGER, sent)]


async def test_who_has_seen_a_call_of_ours_can_do_nothing_to_it(
    phone: Phone, raw: RawPhone, stranger: RawPhone
) -> None:
    leg, callee = await placed(phone, raw)
    callee.answers()
    await asyncio.wait_for(leg.connected(), 5)
    ours = callee.invite.header("From")
    sent = speak(stranger, Dialog(callee.dialog.call_id, "callee", ours, callee.dialog.target, 90))
    await raw.settled()
    assert stranger.sip.received.empty()
    assert not leg.ended.done()
    await callee.hangs_up()
    await ended(leg)
    assert guard_lines(phone) == [("sip.unknown_source", STRANGER, sent)]


async def test_who_has_seen_a_call_gets_403_when_strangers_do(phone: Phone, raw: RawPhone, stranger: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    _native.guard_policy(True, True, 10)
    try:
        sent = speak(stranger, seen(call.dialog))
        await raw.settled()
        answers = {(await stranger.message()).status for _ in range(sent - 1)}
        assert answers == {403}, "to all but the ACK"
        assert stranger.sip.received.empty()
    finally:
        phone.endpoint.set_accepting(True)
    await call.over()
    guard_lines(phone)


async def test_a_copy_of_a_request_from_elsewhere_is_no_retransmission(
    phone: Phone, raw: RawPhone, stranger: RawPhone
) -> None:
    dialog = raw.dialog()
    branch = raw.branch()
    invite = raw.request("INVITE", dialog, body=raw.offer("0"), branch=branch)
    cancel = raw.request("CANCEL", dialog, branch=branch)
    raw.send(invite)
    leg = await phone.next_leg()
    await leg.send_ringing()
    while (await raw.message()).status != 180:
        pass
    stranger.send(invite)
    stranger.send(cancel)
    await raw.settled()
    assert stranger.sip.received.empty()
    assert raw.sip.received.empty()
    assert not leg.ended.done()
    raw.send(invite)
    assert (await raw.message()).status == 180
    raw.send(cancel)
    assert (await raw.final("INVITE")).status == 487
    await ended(leg)
    assert guard_lines(phone) == [("sip.unknown_source", STRANGER, 2)]


NEAR, FAR = "<sip:127.0.0.1;lr>", f"<sip:{PROXY};lr>"


@pytest.mark.parametrize(
    "headers", [(f"Record-Route: {FAR}, {NEAR}",), (f"Record-Route: {NEAR}", f"Record-Route: {FAR}")]
)
async def test_another_proxy_of_the_route_set_may_bring_the_bye(
    phone: Phone, raw: RawPhone, headers: tuple[str, ...]
) -> None:
    call = await LiveCall.made(phone, raw, headers=headers)
    phone.endpoint.set_sources([])
    async with RawPhone(phone.target, PROXY) as proxy:
        await proxy.bye(call.dialog)
    assert (await ended(call.leg)).by_peer
    assert guard_lines(phone) == []


async def test_who_the_contact_names_may_speak(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target, HOME) as home:
        dialog = raw.dialog()
        invite = raw.request("INVITE", dialog, body=raw.offer("0")).decode()
        named = f"Contact: <sip:raw@{raw.host}:{raw.sip.port}>"
        assert named in invite
        raw.send(invite.replace(named, f"Contact: <sip:raw@{HOME}:{home.sip.port}>").encode())
        leg = await phone.next_leg()
        answering = asyncio.create_task(leg.answer())
        await raw.accepted(dialog)
        await answering
        phone.endpoint.set_sources([])
        await home.bye(dialog)
    assert (await ended(leg)).by_peer
    assert guard_lines(phone) == []


async def test_a_peer_may_speak_from_another_port_though_it_is_known_no_more(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    phone.endpoint.set_sources([])
    async with RawPhone(phone.target) as moved:
        await moved.bye(call.dialog)
    assert (await ended(call.leg)).by_peer
    assert guard_lines(phone) == []


async def test_whom_we_have_called_may_speak_though_it_is_known_no_more(phone: Phone, raw: RawPhone) -> None:
    """Its Contact names a proxy of its own."""
    async with RawPhone(phone.target, STRANGER) as called:
        leg, callee = await placed(phone, called)
        callee.phone.named = PROXY  # where Contact says that it is
        callee.answers()
        await asyncio.wait_for(leg.connected(), 5)
        called.send(callee.request("BYE"))
        assert (await called.final("BYE")).status == 200
    assert (await ended(leg)).by_peer
    assert guard_lines(phone) == []


async def test_a_probe_has_no_place_in_a_call(phone: Phone, raw: RawPhone, stranger: RawPhone) -> None:
    phone.endpoint.set_sources(["127.0.0.1"], probes=[STRANGER])
    call = await LiveCall.made(phone, raw)
    stranger.send(stranger.request("OPTIONS", seen(call.dialog)))
    assert (await stranger.options()).status == 200
    assert stranger.sip.received.empty()
    await call.over()
    assert guard_lines(phone) == [("sip.unknown_source", STRANGER, 1)]


async def test_answers_go_to_no_third_party(phone: Phone, raw: RawPhone) -> None:
    """`maddr` in Via would name one (RFC 3261 18.2.2)."""
    async with RawPhone(phone.target, HOME) as other:
        port = f":{raw.sip.port};branch="
        request = raw.request("OPTIONS", raw.dialog()).decode()
        assert port in request
        raw.send(request.replace(port, f":{other.sip.port};maddr={HOME};branch=").encode())
        assert (await raw.final("OPTIONS")).status == 200
        assert other.sip.received.empty()
