"""Why a call ended, over the wire: RFC 3326."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, LegEnd
from sipcore.messages import reason_header
from sipcore.messages.reason_header import Q850Cause
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """The other side."""
    async with RawPhone(phone.target) as raw:
        yield raw


async def placed(phone: Phone, raw: RawPhone) -> tuple[Leg, RawCallee]:
    """A call that rings."""
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.called(raw)
    callee.rings()
    await asyncio.wait_for(leg.ringing, 5)
    return leg, callee


async def talking(phone: Phone, raw: RawPhone) -> tuple[Dialog, Leg]:
    """A call from the raw phone, answered."""
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.accepted(dialog)
    await answering
    return dialog, leg


async def end_of(leg: Leg) -> LegEnd:
    """Wait for the leg's end and give its slot back."""
    end = await asyncio.wait_for(leg.ended, 5)
    leg.release()
    return end


async def test_the_cause_of_a_refusal_reaches_the_leg(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    callee.refuses("503 Service Unavailable", 'Reason: Q.850;cause=34;text="No circuit"', "Reason: SIP;cause=503")
    assert await end_of(leg) == LegEnd(503, "Service Unavailable", True, Q850Cause(34, "No circuit"))


async def test_the_cause_of_a_bye_reaches_the_leg(phone: Phone, raw: RawPhone) -> None:
    dialog, leg = await talking(phone, raw)
    raw.within("BYE", dialog, Reason="Q.850;cause=16")
    assert (await raw.final("BYE")).status == 200
    assert (await end_of(leg)).cause == Q850Cause(16, "")


async def test_a_cancel_may_say_that_another_phone_took_the_call(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.send_ringing()
    elsewhere = 'Reason: SIP;cause=200;text="Call completed elsewhere"'
    raw.send(raw.request("CANCEL", dialog, branch=branch, headers=(elsewhere,)))
    assert (await raw.final("INVITE")).status == 487
    raw.send(raw.request("ACK", dialog, branch=branch))
    end = await end_of(leg)
    assert (end.code, end.by_peer, end.completed_elsewhere) == (487, True, True)


async def test_one_call_s_reason_is_no_other_s(phone: Phone, raw: RawPhone) -> None:
    dialog, leg = await talking(phone, raw)
    await raw.bye(dialog)
    assert (await end_of(leg)).cause is None


async def test_we_say_why_we_hang_up(phone: Phone, raw: RawPhone) -> None:
    _, leg = await talking(phone, raw)
    await leg.hangup(reason_header.TEMPORARY_FAILURE)
    while not (bye := await raw.message()).first_line.startswith("BYE"):
        pass
    assert bye.header("Reason") == 'Q.850;cause=41;text="Temporary failure"'
    end = await end_of(leg)
    assert (end.code, end.by_peer, end.cause) == (200, False, reason_header.q850_cause(41))


async def test_we_say_why_we_cancel(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    await leg.hangup(reason_header.NO_ANSWER)
    cancel = await callee.gets("CANCEL")
    assert cancel.header("Reason") == 'Q.850;cause=19;text="No answer from user"'
    callee.accepts(cancel)
    callee.refuses("487 Request Terminated", "Reason: Q.850;cause=31")
    end = await end_of(leg)
    assert (end.code, end.by_peer, end.cause) == (487, False, reason_header.q850_cause(19))


async def test_we_say_why_we_hang_up_before_the_ack_has_come(phone: Phone, raw: RawPhone) -> None:
    """There is no BYE until then (RFC 3261 15), and one afterwards."""
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.final("INVITE")
    dialog.goes_on_with(answer)
    await answering
    await leg.hangup(reason_header.TEMPORARY_FAILURE)
    end = await end_of(leg)
    assert (end.code, end.by_peer, end.cause) == (200, False, reason_header.q850_cause(41))
    came = await up_to_our_options(raw)
    assert not [message for message in came if message.first_line.startswith("BYE")]
    raw.acknowledge(dialog, answer)
    bye = await raw.asked("BYE")
    assert bye.header("Reason") == 'Q.850;cause=41;text="Temporary failure"'
    raw.reply(bye, "200 OK")
    came = await up_to_our_options(raw)
    assert not [message for message in came if message.first_line.startswith("BYE")]


async def up_to_our_options(raw: RawPhone) -> list[Message]:
    """What came before the answer to an OPTIONS that is sent now."""
    dialog = raw.dialog()
    raw.send(raw.request("OPTIONS", dialog))
    came = []
    while (message := await raw.message()).header("Call-ID") != dialog.call_id:
        came.append(message)
    return came


async def test_we_say_why_we_cancel_before_anybody_has_answered(phone: Phone, raw: RawPhone) -> None:
    """There is no CANCEL until a first response (RFC 3261 9.1)."""
    leg = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.called(raw)
    await leg.hangup(reason_header.NO_ANSWER)
    await end_of(leg)
    callee.trying()
    cancel = await callee.gets("CANCEL")
    assert cancel.header("Reason") == 'Q.850;cause=19;text="No answer from user"'
    callee.accepts(cancel)
    callee.refuses("487 Request Terminated")


async def test_we_say_why_we_hang_up_on_an_answer_that_crossed_our_cancel(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    await leg.hangup(reason_header.NO_ANSWER)
    cancel = await callee.gets("CANCEL")
    callee.answers()
    callee.accepts(cancel)
    bye = await callee.gets("BYE")
    assert bye.header("Reason") == 'Q.850;cause=19;text="No answer from user"'
    callee.accepts(bye)
    await end_of(leg)


async def test_we_say_why_we_refuse(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.reject(486)
    assert (await raw.final("INVITE")).header("Reason") == 'Q.850;cause=17;text="User busy"'
    assert (await end_of(leg)).cause == reason_header.q850_cause(17)
