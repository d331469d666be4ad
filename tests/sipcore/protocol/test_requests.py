"""RFC 3261's rules for odd, retransmitted, late and crossing requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall, assert_audio_flows, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def test_retransmitted_invite_makes_one_leg(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    invite = raw.request("INVITE", dialog, body=raw.offer("0"))
    raw.send(invite)
    raw.send(invite)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    await answering
    raw.send(invite)
    assert (await raw.options()).status == 200
    assert phone.incoming.empty()
    await raw.bye(dialog)
    await wait_ended(leg)


async def test_lost_200_is_retransmitted_until_its_ack(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    first = await raw.final_response("INVITE")
    again = await raw.complete_invite(dialog)
    assert again.header("To") == first.header("To")
    raw.acknowledge(dialog, again)  # a duplicate ACK has no effect
    await assert_audio_flows(phone, raw, await answering)
    await raw.bye(dialog)
    await wait_ended(leg)


async def test_retransmitted_bye_is_answered_again(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    call.dialog.cseq += 1
    bye = raw.request("BYE", call.dialog)
    raw.send(bye)
    assert (await raw.final_response("BYE")).status == 200
    raw.send(bye)
    assert (await raw.final_response("BYE")).status == 200
    await wait_ended(call.leg)


async def test_cancel_after_the_answer_has_no_effect(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.final_response("INVITE")
    raw.send(raw.request("CANCEL", dialog, branch=branch))
    assert (await raw.final_response("CANCEL")).status == 200
    dialog.update_target(answer)
    raw.acknowledge(dialog, answer)
    await answering
    assert not leg.ended.done()
    await raw.bye(dialog)
    await wait_ended(leg)


async def test_cancel_before_any_response_cancels(phone: Phone, raw: RawPhone) -> None:
    """The CANCEL comes before any response to the INVITE."""
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    raw.send(raw.request("CANCEL", dialog, branch=branch))
    finals = [await raw.final_response(), await raw.final_response()]
    assert {final.header("CSeq").split()[1]: final.status for final in finals} == {"CANCEL": 200, "INVITE": 487}
    raw.acknowledge(dialog, finals[1], branch)
    leg = await phone.next_leg()
    with pytest.raises(ConnectionError):
        await leg.answer()
    assert (await wait_ended(leg)).by_peer


async def test_cancel_without_an_invite_gets_481(phone: Phone, raw: RawPhone) -> None:
    raw.send(raw.request("CANCEL", raw.dialog()))
    assert (await raw.final_response("CANCEL")).status == 481


async def test_bye_ends_an_early_dialog(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 15: a caller may send BYE in an early dialog."""
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.send_ringing()
    while (ringing := await raw.next_message()).status != 180:
        pass
    dialog.to, dialog.target = ringing.header("To"), ringing.header("Contact").split("<")[1].split(">")[0]
    raw.send_in_dialog("BYE", dialog)
    finals: dict[str, int] = {}
    while len(finals) < 2:
        answer = await raw.final_response()
        finals[answer.header("CSeq").split()[1]] = answer.status
    dialog.cseq -= 1
    raw.acknowledge(dialog, answer, branch)
    assert finals == {"BYE": 200, "INVITE": 487}
    assert (await wait_ended(leg)).by_peer


async def test_request_with_a_lower_cseq_gets_500_and_the_call_continues(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 12.2.2."""
    call = await LiveCall.make(phone, raw)
    call.dialog.cseq = 20
    assert await raw.info(call.dialog, "dtmf", b"1") == 200
    call.dialog.cseq = 4
    for method in ("BYE", "INFO", "UPDATE"):
        raw.send_in_dialog(method, call.dialog)
        assert (await raw.final_response(method)).status == 500
    assert (await call.send_offer(raw.offer("0", "sendonly"))).status == 500
    assert not call.leg.ended.done()
    assert not call.leg.on_hold
    call.dialog.cseq = 21
    await call.end()


@pytest.mark.parametrize("method", ["INVITE", "UPDATE", "INFO"])
async def test_unsupported_required_extension_gets_420(phone: Phone, raw: RawPhone, method: str) -> None:
    """RFC 3261 8.2.2.3; an extension in Proxy-Require does not concern us."""
    if method == "INVITE":
        raw.invite(raw.dialog(), raw.offer("0"), ("Require: 100rel, nonsense, trickle-ice",))
        refused = await raw.final_response("INVITE")
        assert (refused.status, refused.header("Unsupported")) == (420, "nonsense, trickle-ice")
    call = await LiveCall.make(phone, raw, headers=("Proxy-Require: nonsense", "Supported: nonsense"))
    refused = await call.send_offer(raw.offer("0") if method != "INFO" else "", method, ("Require: nonsense",))
    assert (refused.status, refused.header("Unsupported")) == (420, "nonsense")
    await call.end()


async def test_unknown_method_within_a_call_is_rejected(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    raw.send_in_dialog("FOO", call.dialog)
    refused = await raw.final_response("FOO")
    assert refused.status == 405
    assert "INVITE" in refused.header("Allow")
    assert not call.leg.ended.done()
    await call.end()


async def test_info_without_a_body_gets_200_and_with_another_body_415(phone: Phone, raw: RawPhone) -> None:
    """RFC 6086 4.2.2."""
    call = await LiveCall.make(phone, raw)
    raw.send_in_dialog("INFO", call.dialog)
    assert (await raw.final_response("INFO")).status == 200
    call.dialog.cseq += 1
    raw.send(raw.request("INFO", call.dialog, body="x").replace(b"application/sdp", b"application/media_control+xml"))
    refused = await raw.final_response("INFO")
    assert (refused.status, refused.header("Accept")) == (415, "application/dtmf-relay, application/dtmf")
    await call.end()


async def test_unsupported_body_gets_415(phone: Phone, raw: RawPhone) -> None:
    invite = raw.request("INVITE", raw.dialog(), body="<offer/>").replace(b"application/sdp", b"application/xml")
    raw.send(invite)
    refused = await raw.final_response("INVITE")
    assert (refused.status, refused.header("Accept")) == (415, "application/sdp")


async def test_offer_is_found_in_a_multipart_body(phone: Phone, raw: RawPhone) -> None:
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
    await raw.complete_invite(dialog)
    await assert_audio_flows(phone, raw, await answering)
    await raw.bye(dialog)
    await wait_ended(leg)


async def test_request_with_max_forwards_0_is_served(phone: Phone, raw: RawPhone) -> None:
    """RFC 4475 3.3.11: only a proxy rejects it; its target serves it."""
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog, body=raw.offer("0")).replace(b"Max-Forwards: 70", b"Max-Forwards: 0"))
    leg = await phone.next_leg()
    await leg.reject(486)
    assert (await raw.final_response("INVITE")).status == 486


async def test_merged_request_gets_482(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 8.2.2.2."""
    dialog = raw.dialog()
    offer = raw.offer("0")
    raw.invite(dialog, offer)
    leg = await phone.next_leg()
    await leg.send_ringing()
    raw.invite(dialog, offer)
    assert (await raw.final_response("INVITE")).status == 482
    await leg.reject(486)
    assert (await raw.final_response("INVITE")).status == 486
    assert phone.incoming.empty()
    await wait_ended(leg)


async def test_options_lists_capabilities_outside_and_within_a_call(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 11.2."""
    outside = await raw.options()
    call = await LiveCall.make(phone, raw)
    raw.send_in_dialog("OPTIONS", call.dialog)
    within = await raw.final_response("OPTIONS")
    for answer in (outside, within):
        assert answer.status == 200
        assert {"INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "UPDATE", "PRACK"} <= set(
            answer.header("Allow").replace(" ", "").split(",")
        )
        assert "application/sdp" in answer.header("Accept")
        assert {"100rel", "timer"} <= set(answer.header("Supported").replace(" ", "").split(","))
    await call.end()


async def test_options_gets_503_while_not_accepting_except_within_a_call(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    phone.endpoint.set_accepting(False, retry_after_s=9)
    try:
        outside = await raw.options()
        raw.send_in_dialog("OPTIONS", call.dialog)
        within = await raw.final_response("OPTIONS")
    finally:
        phone.endpoint.set_accepting(True)
    assert (outside.status, outside.header("Retry-After"), within.status) == (503, "9", 200)
    assert "INVITE" in outside.header("Allow")
    await call.end()


async def test_request_within_an_ended_call_gets_481(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    await call.end()
    for method in ("INFO", "UPDATE", "OPTIONS"):
        raw.send_in_dialog(method, call.dialog)
        assert (await raw.final_response(method)).status == 481
    assert (await call.send_offer(raw.offer("0"))).status == 481
