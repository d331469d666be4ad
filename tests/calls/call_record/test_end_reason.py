"""The stored end reason of a call by its SIP end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calls.call_record.end_reason import ended_reason_of, sip_end_of
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import LegEnd
from sipcore.messages.reason_header import Q850Cause, ReasonHeader
from tests.calls.call_service_harness import call_service, until
from tests.calls.outbound_calls import callee, ended, queue, status_and_reason


@pytest.mark.parametrize(
    ("end", "inbound", "answered", "reason"),
    [
        (LegEnd(200, "OK", True), True, True, "customer_ended"),
        (LegEnd(487, "", True), True, False, "customer_ended"),
        (LegEnd(487, "", True, completed_elsewhere=True), True, False, "no_answer"),
        (LegEnd(200, "", True, completed_elsewhere=True), True, True, "customer_ended"),
        (LegEnd(408, "", True), True, True, "unreachable"),
        (LegEnd(480, "", True, Q850Cause(17, "")), False, False, "busy"),
        (LegEnd(503, "", True, Q850Cause(1, "")), False, False, "invalid_number"),
        (LegEnd(486, "", True), False, False, "busy"),
        (LegEnd(503, "", True, Q850Cause(17, "")), True, True, "unreachable"),
    ],
)
def test_the_reason_of_an_end_by_the_other_side(end: LegEnd, inbound: bool, answered: bool, reason: str) -> None:
    assert ended_reason_of(end, inbound=inbound, answered=answered) == reason


def test_a_timeout_has_no_status_and_no_originator() -> None:
    end = sip_end_of(LegEnd(0, "", True))
    assert (end["statusCode"], end["reasonPhrase"], end["byPeer"]) == (None, None, False)


@pytest.mark.parametrize(("code", "phrase"), [(200, None), (487, "Request Terminated"), (0, None)])
def test_only_a_status_that_was_on_the_wire_has_a_phrase(code: int, phrase: str | None) -> None:
    """PJSIP has phrases for a BYE and for a timeout, which were not on the wire."""
    assert sip_end_of(LegEnd(code, "Request Terminated", True))["reasonPhrase"] == phrase


async def test_the_callees_rejection_is_stored(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        call = await queue(harness, await harness.create_number())
        (await callee(harness)).ends(480, ReasonHeader(Q850Cause(17, "User busy")))
        end = await ended(harness, call)
    assert status_and_reason(end) == ("failed", "busy")
    assert end.sip_end == {
        "statusCode": 480,
        "reasonPhrase": "",
        "q850Cause": 17,
        "q850Text": "User busy",
        "byPeer": True,
    }


async def test_a_call_completed_elsewhere_is_no_answer(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = harness.invite()
        phone.dialog.mute = True
        await until(lambda: 180 in phone.sent)
        phone.hangs_up(487, ReasonHeader(None, completed_elsewhere=True))
        end = await harness.ended_call(phone)
    assert status_and_reason(end) == ("no_answer", "no_answer")
    assert end.sip_end is not None
    assert end.sip_end["reasonPhrase"] == "Call completed elsewhere"


@pytest.mark.parametrize(
    ("settings", "reason", "cause"), [({"ring_timeout_s": 0.05}, "no_answer", 19), ({}, "api_hangup", 16)]
)
async def test_our_cancel_and_bye_have_a_q850_cause(
    tmp_path: Path, settings: dict[str, Any], reason: str, cause: int
) -> None:
    async with call_service(tmp_path, **settings) as harness:
        call = await queue(harness, await harness.create_number())
        there = await callee(harness)
        there.rings()
        if reason == "api_hangup":
            await harness.service.hangup(call.id)
        end = await ended(harness, call)
    assert end.ended_reason == reason
    assert f"cause={cause};" in there.dialog.headers["Reason"]
    assert end.sip_end is not None
    assert (end.sip_end["q850Cause"], end.sip_end["byPeer"]) == (cause, False)


async def test_a_regular_end_is_normal_clearing_and_a_failure_is_not(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phones = [harness.invite(), harness.invite()]
        await until(lambda: all(phone.leg.on_digit is not None for phone in phones))
        live = {each.call.call_sid: each for each in harness.service.active_calls()}
        live[phones[0].leg.sip_call_id].end("max_duration")
        live[phones[1].leg.sip_call_id].end("server_shutdown")
        for phone, cause in zip(phones, (16, 41), strict=True):
            await harness.ended_call(phone)
            assert f"cause={cause};" in phone.dialog.headers["Reason"]


async def test_a_call_that_was_never_placed_has_no_sip_end(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        harness.callees.error = InviteError("rejected_locally", "no")
        assert (await ended(harness, await queue(harness, await harness.create_number()))).sip_end is None
