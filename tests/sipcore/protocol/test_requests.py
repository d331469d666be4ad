"""What RFC 3261 says about requests that are odd, repeated, late or crossing, from a caller that is only bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall, assert_sound_flows, ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def test_an_invite_that_comes_twice_is_one_call(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    invite = raw.request("INVITE", dialog, body=raw.offer("0"))
    raw.send(invite)
    raw.send(invite)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.accepted(dialog)
    await answering
    raw.send(invite)
    assert (await raw.options()).status == 200
    assert phone.incoming.empty()
    await raw.bye(dialog)
    await ended(leg)


async def test_an_answer_that_is_lost_is_sent_again_and_acknowledged_late(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    first = await raw.final("INVITE")
    again = await raw.accepted(dialog)
    assert again.header("To") == first.header("To")
    raw.acknowledge(dialog, again)  # twice does no harm
    await assert_sound_flows(phone, raw, await answering)
    await raw.bye(dialog)
    await ended(leg)


async def test_a_bye_whose_answer_was_lost_is_answered_again(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    call.dialog.cseq += 1
    bye = raw.request("BYE", call.dialog)
    raw.send(bye)
    assert (await raw.final("BYE")).status == 200
    raw.send(bye)
    assert (await raw.final("BYE")).status == 200
    await ended(call.leg)


async def test_a_cancel_that_crosses_the_answer_changes_nothing(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.final("INVITE")
    raw.send(raw.request("CANCEL", dialog, branch=branch))
    assert (await raw.final("CANCEL")).status == 200
    dialog.goes_on_with(answer)
    raw.acknowledge(dialog, answer)
    await answering
    assert not leg.ended.done()
    await raw.bye(dialog)
    await ended(leg)


async def test_a_cancel_right_behind_its_invite_cancels(phone: Phone, raw: RawPhone) -> None:
    """Before anything was said to the INVITE."""
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    raw.send(raw.request("CANCEL", dialog, branch=branch))
    finals = [await raw.final(), await raw.final()]
    assert {final.header("CSeq").split()[1]: final.status for final in finals} == {"CANCEL": 200, "INVITE": 487}
    raw.acknowledge(dialog, finals[1], branch)
    leg = await phone.next_leg()
    with pytest.raises(ConnectionError):
        await leg.answer()
    assert (await ended(leg)).by_peer


async def test_a_cancel_of_nothing_is_told_so(phone: Phone, raw: RawPhone) -> None:
    raw.send(raw.request("CANCEL", raw.dialog()))
    assert (await raw.final("CANCEL")).status == 481


async def test_a_caller_may_hang_up_while_it_rings_by_bye(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 15: a caller may send BYE in an early dialog."""
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.send_ringing()
    while (ringing := await raw.message()).status != 180:
        pass
    dialog.to, dialog.target = ringing.header("To"), ringing.header("Contact").split("<")[1].split(">")[0]
    raw.within("BYE", dialog)
    finals = {}
    while len(finals) < 2:
        answer = await raw.final()
        finals[answer.header("CSeq").split()[1]] = answer.status
    dialog.cseq -= 1
    raw.acknowledge(dialog, answer, branch)
    assert finals == {"BYE": 200, "INVITE": 487}
    assert (await ended(leg)).by_peer


async def test_a_request_out_of_order_is_refused_and_the_call_goes_on(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 12.2.2."""
    call = await LiveCall.made(phone, raw)
    call.dialog.cseq = 20
    assert await raw.info(call.dialog, "dtmf", b"1") == 200
    call.dialog.cseq = 4
    for method in ("BYE", "INFO", "UPDATE"):
        raw.within(method, call.dialog)
        assert (await raw.final(method)).status == 500
    assert (await call.again(raw.offer("0", "sendonly"))).status == 500
    assert not call.leg.ended.done()
    assert not call.leg.on_hold
    call.dialog.cseq = 21
    await call.over()


@pytest.mark.parametrize("method", ["INVITE", "UPDATE", "INFO"])
async def test_an_extension_that_we_do_not_know_is_refused_by_name(phone: Phone, raw: RawPhone, method: str) -> None:
    """RFC 3261 8.2.2.3; what is required of a proxy is not required of us."""
    if method == "INVITE":
        raw.invite(raw.dialog(), raw.offer("0"), ("Require: 100rel, nonsense, trickle-ice",))
        refused = await raw.final("INVITE")
        assert (refused.status, refused.header("Unsupported")) == (420, "nonsense, trickle-ice")
    call = await LiveCall.made(phone, raw, headers=("Proxy-Require: nonsense", "Supported: nonsense"))
    refused = await call.again(raw.offer("0") if method != "INFO" else "", method, ("Require: nonsense",))
    assert (refused.status, refused.header("Unsupported")) == (420, "nonsense")
    await call.over()


async def test_a_method_that_we_do_not_know_is_refused_within_a_call(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    raw.within("FOO", call.dialog)
    refused = await raw.final("FOO")
    assert refused.status == 405
    assert "INVITE" in refused.header("Allow")
    assert not call.leg.ended.done()
    await call.over()


async def test_info_is_taken_without_a_body_and_refused_with_one_that_is_no_key(phone: Phone, raw: RawPhone) -> None:
    """RFC 6086 4.2.2."""
    call = await LiveCall.made(phone, raw)
    raw.within("INFO", call.dialog)
    assert (await raw.final("INFO")).status == 200
    call.dialog.cseq += 1
    raw.send(raw.request("INFO", call.dialog, body="x").replace(b"application/sdp", b"application/media_control+xml"))
    refused = await raw.final("INFO")
    assert (refused.status, refused.header("Accept")) == (415, "application/dtmf-relay, application/dtmf")
    await call.over()


async def test_a_body_that_we_do_not_know_is_refused(phone: Phone, raw: RawPhone) -> None:
    invite = raw.request("INVITE", raw.dialog(), body="<offer/>").replace(b"application/sdp", b"application/xml")
    raw.send(invite)
    refused = await raw.final("INVITE")
    assert (refused.status, refused.header("Accept")) == (415, "application/sdp")


async def test_an_offer_is_found_among_several_parts(phone: Phone, raw: RawPhone) -> None:
    """RFC 5621."""
    dialog = raw.dialog()
    body = (
        "--edge\r\nContent-Type: application/isup\r\nContent-Disposition: signal;handling=optional\r\n\r\n\x01\x02\r\n"
        f"--edge\r\nContent-Type: application/sdp\r\n\r\n{raw.offer('0')}\r\n--edge--\r\n"
    )
    invite = raw.request("INVITE", dialog, body=body).replace(b"application/sdp", b'multipart/mixed;boundary="edge"', 1)
    raw.send(invite)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.accepted(dialog)
    await assert_sound_flows(phone, raw, await answering)
    await raw.bye(dialog)
    await ended(leg)


async def test_a_request_that_may_go_no_further_has_arrived(phone: Phone, raw: RawPhone) -> None:
    """RFC 4475 3.3.11: only a proxy refuses it; whom it is meant for serves it."""
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog, body=raw.offer("0")).replace(b"Max-Forwards: 70", b"Max-Forwards: 0"))
    leg = await phone.next_leg()
    await leg.reject(486)
    assert (await raw.final("INVITE")).status == 486


async def test_the_same_request_by_another_way_is_a_loop(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 8.2.2.2."""
    dialog = raw.dialog()
    offer = raw.offer("0")
    raw.invite(dialog, offer)
    leg = await phone.next_leg()
    await leg.send_ringing()
    raw.invite(dialog, offer)
    assert (await raw.final("INVITE")).status == 482
    await leg.reject(486)
    assert (await raw.final("INVITE")).status == 486
    assert phone.incoming.empty()
    await ended(leg)


async def test_options_says_what_we_take_outside_a_call_and_within(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 11.2."""
    outside = await raw.options()
    call = await LiveCall.made(phone, raw)
    raw.within("OPTIONS", call.dialog)
    within = await raw.final("OPTIONS")
    for answer in (outside, within):
        assert answer.status == 200
        assert {"INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "UPDATE", "PRACK"} <= set(
            answer.header("Allow").replace(" ", "").split(",")
        )
        assert "application/sdp" in answer.header("Accept")
        assert {"100rel", "timer"} <= set(answer.header("Supported").replace(" ", "").split(","))
    await call.over()


async def test_options_says_so_while_no_calls_are_taken_but_not_within_a_call(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    phone.endpoint.set_accepting(False, retry_after_s=9)
    try:
        outside = await raw.options()
        raw.within("OPTIONS", call.dialog)
        within = await raw.final("OPTIONS")
    finally:
        phone.endpoint.set_accepting(True)
    assert (outside.status, outside.header("Retry-After"), within.status) == (503, "9", 200)
    assert "INVITE" in outside.header("Allow")
    await call.over()


async def test_a_request_of_a_call_that_is_over_is_told_so(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw)
    await call.over()
    for method in ("INFO", "UPDATE", "OPTIONS"):
        raw.within(method, call.dialog)
        assert (await raw.final(method)).status == 481
    assert (await call.again(raw.offer("0"))).status == 481
