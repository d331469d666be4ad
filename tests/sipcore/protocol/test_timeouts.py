"""What happens when half a minute or more has passed: session timers that run out (RFC 4028), answers that never come
(RFC 3261 17). The endpoint's clock runs fast, and all cases run at once, each a test of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tests.sipcore.accelerated_endpoint import SPEED, AcceleratedPhone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")

Case = Callable[[AcceleratedPhone, RawPhone], Awaitable[None]]
CASES: dict[str, Case] = {}
TIMER = "Supported: timer"
GIVES_UP_AFTER_S = 32
"""64 * T1."""


def case(function: Case) -> Case:
    """Registers a case; all cases run at once."""
    CASES[function.__name__] = function
    return function


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs() -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """All cases, started."""

    async def run(case: Case, accelerated: AcceleratedPhone) -> None:
        async with asyncio.timeout(50), RawPhone(accelerated.target) as raw:
            await case(accelerated, raw)

    async with AcceleratedPhone.started(session_timer_s=90) as accelerated:
        runs = {name: asyncio.create_task(run(case, accelerated)) for name, case in CASES.items()}
        await asyncio.wait(runs.values())
        yield runs


@case
async def the_server_refreshes_by_update_when_it_is_to_and_the_caller_knows_that(
    accelerated: AcceleratedPhone, raw: RawPhone
) -> None:
    dialog = await called(raw, TIMER, "Allow: INVITE, UPDATE", "Session-Expires: 90;refresher=uas")
    for request in await refreshed(raw, "UPDATE", 2):
        assert request.header("Session-Expires") == "90;refresher=uac"
        assert request.body == ""
    await hung_up(accelerated, raw, dialog)


@case
async def the_server_refreshes_by_reinvite_without_update(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    dialog = await called(raw, TIMER, "Session-Expires: 90;refresher=uas")
    for request in await refreshed(raw, "INVITE", 2):
        assert "m=audio" in request.body
    await hung_up(accelerated, raw, dialog)


@case
async def a_call_that_its_caller_refreshes_continues_until_the_caller_vanishes(
    accelerated: AcceleratedPhone, raw: RawPhone
) -> None:
    dialog = await called(raw, TIMER, "Session-Expires: 90;refresher=uac")
    await asyncio.sleep(1)
    raw.send_in_dialog("UPDATE", dialog, Supported="timer", Session_Expires="90;refresher=uac")
    refreshed = await raw.final_response("UPDATE")
    assert (refreshed.status, refreshed.header("Session-Expires")) == (200, "90;refresher=uac")
    raw.reply(await raw.next_request("BYE"), "200 OK")
    end = await accelerated.end_of(dialog.call_id)
    assert end["code"] == 408
    assert_about(end["after_s"], 30 + 60)


@case
async def a_call_without_refreshes_of_the_caller_gets_bye_before_its_expiry(
    accelerated: AcceleratedPhone, raw: RawPhone
) -> None:
    """A third of the interval before its end (RFC 4028 10)."""
    dialog = await called(raw, TIMER, "Session-Expires: 90;refresher=uac")
    raw.reply(await raw.next_request("BYE"), "200 OK")
    assert_about((await accelerated.end_of(dialog.call_id))["after_s"], 60)


@case
async def a_refresh_without_a_response_ends_the_call(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    dialog = await called(raw, TIMER, "Allow: UPDATE", "Session-Expires: 90;refresher=uas")
    end = await accelerated.end_of(dialog.call_id)
    assert end["code"] == 408
    assert_about(end["after_s"], 45 + 2 * GIVES_UP_AFTER_S)


@case
async def a_call_without_a_session_timer_continues(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    dialog = await called(raw)
    await asyncio.sleep(5)
    await hung_up(accelerated, raw, dialog)
    assert (await accelerated.end_of(dialog.call_id))["after_s"] > 120


@case
async def we_refresh_a_call_with_refresher_uac(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    callee = await place_call(accelerated, raw)
    callee.answer(None, "Allow: UPDATE", "Require: timer", "Session-Expires: 90;refresher=uac")
    request = await callee.next_request("UPDATE")
    raw.reply(request, "200 OK", "Session-Expires: 90;refresher=uac", "Require: timer")
    await callee.next_request("UPDATE")
    await callee.hang_up()


@case
async def a_vanished_callee_gets_bye(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    callee = await place_call(accelerated, raw)
    callee.answer(None, "Require: timer", "Session-Expires: 90;refresher=uas")
    await callee.expect_bye()
    assert_about((await accelerated.end_of(callee.dialog.call_id))["after_s"], 60)


@case
async def an_update_that_got_491_is_retried(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    await crossing(accelerated, raw, "UPDATE", times=2)


@case
async def a_reinvite_that_got_491_is_retried(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    await crossing(accelerated, raw, "INVITE", times=2)


async def crossing(accelerated: AcceleratedPhone, raw: RawPhone, method: str, times: int) -> None:
    """A call whose refresh gets 491 several times and succeeds."""
    allow = ("Allow: UPDATE",) if method == "UPDATE" else ()
    dialog = await called(raw, TIMER, "Session-Expires: 90;refresher=uas", *allow)
    statuses: dict[str, str] = {}
    await refreshed(raw, method, times, "491 Request Pending", statuses)
    await refreshed(raw, method, 2, statuses=statuses)
    await hung_up(accelerated, raw, dialog)
    assert (await accelerated.end_of(dialog.call_id))["after_s"] > 45


@case
async def a_200_without_an_ack_is_retransmitted_and_ends_the_call(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    answers = 0
    while not (message := await raw.next_message()).first_line.startswith("BYE "):
        answers += message.status == 200
    raw.reply(message, "200 OK")
    end = await accelerated.end_of(dialog.call_id)
    assert 5 <= answers <= 12, "after 0.5, 1, 2 s and every 4 s"
    assert_about(end["after_s"], GIVES_UP_AFTER_S)


@case
async def a_reliable_180_without_a_prack_ends_the_call(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    """RFC 3262 3."""
    dialog = raw.dialog()
    dialog.target = dialog.target.replace("100", "ring")
    raw.invite(dialog, raw.offer("0"), ("Require: 100rel",))
    assert (await raw.final_response("INVITE")).status == 504
    assert_about((await accelerated.end_of(dialog.call_id))["after_s"], GIVES_UP_AFTER_S)


@case
async def a_bye_without_a_response_is_retransmitted_and_the_call_ends(
    accelerated: AcceleratedPhone, raw: RawPhone
) -> None:
    dialog = await called(raw)
    accelerated.hang_up(dialog.call_id)
    numbers: list[str] = []
    while len(set(numbers)) == len(numbers):  # with a new one it would be another BYE
        numbers.append((await raw.next_request("BYE")).header("CSeq"))
    end = await accelerated.end_of(dialog.call_id)
    assert end["after_s"] < GIVES_UP_AFTER_S + 10


@case
async def an_invite_without_a_response_times_out(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    callee = await place_call(accelerated, raw)
    end = await accelerated.end_of(callee.dialog.call_id)
    assert (end["code"], end["by_peer"]) == (0, True)
    assert_about(end["after_s"], GIVES_UP_AFTER_S)


@case
async def a_cancelled_invite_without_a_final_response_ends(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    """RFC 3261 9.1."""
    callee = await place_call(accelerated, raw)
    callee.ring()
    accelerated.hang_up(callee.dialog.call_id)
    callee.accept(await callee.next_request("CANCEL"))
    assert not (await accelerated.end_of(callee.dialog.call_id))["by_peer"]


@case
async def a_refer_without_a_response_times_out_and_the_call_goes_on(
    accelerated: AcceleratedPhone, raw: RawPhone
) -> None:
    """PJSIP itself would end the call with it (RFC 3261 12.2.1.2)."""
    dialog = await called(raw)
    accelerated.refer(dialog.call_id, 100)
    requests = {(await raw.next_request("REFER")).header("CSeq") for _ in range(5)}
    assert len(requests) == 1
    result = await accelerated.refer_result(dialog.call_id)
    assert (result["kind"], result["sip_status"]) == ("no_response", 0)
    assert_about(result["after_s"], GIVES_UP_AFTER_S)
    await hung_up(accelerated, raw, dialog)


@case
async def a_refer_that_is_given_up_is_not_retransmitted(accelerated: AcceleratedPhone, raw: RawPhone) -> None:
    dialog = await called(raw)
    accelerated.refer(dialog.call_id, 5)
    result = await accelerated.refer_result(dialog.call_id)
    assert (result["kind"], result["sip_status"]) == ("no_response", 0)
    await raw.wait_processed()
    while not raw.sip.received.empty():
        raw.sip.received.get_nowait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(raw.sip.received.get(), GIVES_UP_AFTER_S / SPEED)
    await hung_up(accelerated, raw, dialog)


async def refreshed(
    raw: RawPhone, method: str, times: int, status: str = "200 OK", statuses: dict[str, str] | None = None
) -> list[Message]:
    """That many refreshes, answered so. A retransmitted one, because its response is late, gets the same response (by
    CSeq)."""
    statuses = {} if statuses is None else statuses
    requests: list[Message] = []
    while len(requests) < times:
        request = await raw.next_request(method)
        if request.header("CSeq") not in statuses:
            statuses[request.header("CSeq")] = status
            requests.append(request)
        answer = statuses[request.header("CSeq")]
        body = raw.offer("0") if request.body and answer == "200 OK" else ""
        raw.reply(request, answer, "Session-Expires: 90;refresher=uac", "Require: timer", body=body)
    return requests


def assert_about(after_s: float, expected_s: float) -> None:
    """Not before its time, and soon after it, by the accelerated clock."""
    assert expected_s - 5 < after_s < 1.5 * expected_s + 20


async def called(raw: RawPhone, *headers: str) -> Dialog:
    """An answered call from the raw phone."""
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"), headers)
    await raw.complete_invite(dialog)
    return dialog


async def place_call(accelerated: AcceleratedPhone, raw: RawPhone) -> RawCallee:
    """An outbound call whose INVITE has reached the raw phone."""
    accelerated.call(f"sip:1@127.0.0.1:{raw.sip.port}")
    return await RawCallee.wait_for_invite(raw)


async def hung_up(accelerated: AcceleratedPhone, raw: RawPhone, dialog: Dialog) -> None:
    """The raw phone hangs up a call that has not ended before."""
    assert not accelerated.has_ended(dialog.call_id)
    dialog.cseq += 1
    raw.send(raw.request("BYE", dialog))
    assert (await accelerated.end_of(dialog.call_id))["by_peer"]


@pytest.mark.parametrize("name", CASES)
async def test_that(runs: dict[str, asyncio.Task[None]], name: str) -> None:
    await runs[name]
