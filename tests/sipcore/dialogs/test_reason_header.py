"""The Reason header (RFC 3326) on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, LegEnd
from sipcore.messages import reason_header
from sipcore.messages.reason_header import Q850Cause
from tests.sipcore.live_call import LiveCall, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """The peer."""
    async with RawPhone(phone.target) as raw:
        yield raw


async def place_call(phone: Phone, raw: RawPhone) -> tuple[Leg, RawCallee]:
    """An outbound call that rings."""
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    callee.ring()
    await asyncio.wait_for(leg.ringing, 5)
    return leg, callee


async def test_q850_cause_of_a_refusal_reaches_the_leg(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    callee.reject("503 Service Unavailable", 'Reason: Q.850;cause=34;text="No circuit"', "Reason: SIP;cause=503")
    assert await wait_ended(leg) == LegEnd(503, "Service Unavailable", True, Q850Cause(34, "No circuit"))


async def test_q850_cause_of_a_bye_reaches_the_leg(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    raw.send_in_dialog("BYE", call.dialog, Reason="Q.850;cause=16")
    assert (await raw.final_response("BYE")).status == 200
    assert (await wait_ended(call.leg)).cause == Q850Cause(16, "")


async def test_cancel_reports_that_the_call_was_completed_elsewhere(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.send_ringing()
    elsewhere = 'Reason: SIP;cause=200;text="Call completed elsewhere"'
    raw.send(raw.request("CANCEL", dialog, branch=branch, headers=(elsewhere,)))
    assert (await raw.final_response("INVITE")).status == 487
    raw.send(raw.request("ACK", dialog, branch=branch))
    end = await wait_ended(leg)
    assert (end.code, end.by_peer, end.completed_elsewhere) == (487, True, True)


async def test_reason_of_one_call_is_not_reported_for_another(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    await raw.bye(call.dialog)
    assert (await wait_ended(call.leg)).cause is None


async def test_bye_has_a_reason(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    await call.leg.hangup(reason_header.TEMPORARY_FAILURE)
    while not (bye := await raw.next_message()).first_line.startswith("BYE"):
        pass
    assert bye.header("Reason") == 'Q.850;cause=41;text="Temporary failure"'
    end = await wait_ended(call.leg)
    assert (end.code, end.by_peer, end.cause) == (200, False, reason_header.q850_cause(41))


async def test_cancel_has_a_reason(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    await leg.hangup(reason_header.NO_ANSWER)
    cancel = await callee.next_request("CANCEL")
    assert cancel.header("Reason") == 'Q.850;cause=19;text="No answer from user"'
    callee.accept(cancel)
    callee.reject("487 Request Terminated", "Reason: Q.850;cause=31")
    end = await wait_ended(leg)
    assert (end.code, end.by_peer, end.cause) == (487, False, reason_header.q850_cause(19))


async def test_bye_after_a_late_ack_has_a_reason(phone: Phone, raw: RawPhone) -> None:
    """There is no BYE before the ACK (RFC 3261 15), and one afterwards."""
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.final_response("INVITE")
    dialog.update_target(answer)
    await answering
    await leg.hangup(reason_header.TEMPORARY_FAILURE)
    end = await wait_ended(leg)
    assert (end.code, end.by_peer, end.cause) == (200, False, reason_header.q850_cause(41))
    messages = await messages_before_options(raw)
    assert not [message for message in messages if message.first_line.startswith("BYE")]
    raw.acknowledge(dialog, answer)
    bye = await raw.next_request("BYE")
    assert bye.header("Reason") == 'Q.850;cause=41;text="Temporary failure"'
    raw.reply(bye, "200 OK")
    messages = await messages_before_options(raw)
    assert not [message for message in messages if message.first_line.startswith("BYE")]


async def messages_before_options(raw: RawPhone) -> list[Message]:
    """The messages received before the response to an OPTIONS that is sent now."""
    dialog = raw.dialog()
    raw.send(raw.request("OPTIONS", dialog))
    messages = []
    while (message := await raw.next_message()).header("Call-ID") != dialog.call_id:
        messages.append(message)
    return messages


async def test_cancel_after_a_late_provisional_response_has_a_reason(phone: Phone, raw: RawPhone) -> None:
    """There is no CANCEL before the first response (RFC 3261 9.1)."""
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    await leg.hangup(reason_header.NO_ANSWER)
    await wait_ended(leg)
    callee.send_trying()
    cancel = await callee.next_request("CANCEL")
    assert cancel.header("Reason") == 'Q.850;cause=19;text="No answer from user"'
    callee.accept(cancel)
    callee.reject("487 Request Terminated")


async def test_bye_of_an_answer_that_crossed_the_cancel_has_a_reason(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    await leg.hangup(reason_header.NO_ANSWER)
    cancel = await callee.next_request("CANCEL")
    callee.answer()
    callee.accept(cancel)
    bye = await callee.next_request("BYE")
    assert bye.header("Reason") == 'Q.850;cause=19;text="No answer from user"'
    callee.accept(bye)
    await wait_ended(leg)


async def test_refusal_has_a_reason(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.reject(486)
    assert (await raw.final_response("INVITE")).header("Reason") == 'Q.850;cause=17;text="User busy"'
    assert (await wait_ended(leg)).cause == reason_header.q850_cause(17)
