"""POST /calls and POST /calls/{id}/hangup, with the service that places calls behind them; only SIP is a fake."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from calls.admission.capacity import ConcurrencyLimits
from storage.accounts import api_keys, organizations
from storage.calls import calls
from tests.api.conftest import Api
from tests.api.outbound_client import TO, Desk, desk
from tests.calls.call_service_harness import until
from tests.fakes.scripted_call import ScriptedLlm

__all__ = ["desk"]

# ---- what is created ----


async def test_a_call_is_queued_told_whole_and_placed(desk: Desk) -> None:
    variables = {"first_name": "Ann", "Age2": 36, "share": 0.5, "vip": True, "_": ""}
    status, answer = await desk.calls({"contextVariables": variables, "metadata": {"order": {"n": [7]}}})
    call = answer["data"]
    assert status == 201
    assert (call["status"], call["direction"], call["customerNumber"]) == ("queued", "outbound", TO)
    assert (call["agentId"], call["phoneNumberId"]) == (desk.agent_id, desk.number.id)
    assert (call["contextVariables"], call["metadata"]) == (variables, {"order": {"n": [7]}})
    assert (call["provider"], call["organizationId"]) == ("sip", desk.api.organization_id)
    assert (call["transcript"], call["analysis"], call["transferCalls"], call["turnCount"]) == ([], None, [], 0)
    for unknown in ("callSid", "startedAt", "endedAt", "endedReason", "durationSeconds", "recordingUrl"):
        assert call[unknown] is None
    there = await desk.callee()
    _, answer = await desk.api("GET", f"/calls/{call['id']}")
    assert answer["data"] == {**call, "callSid": there.leg.sip_call_id}


async def test_variables_and_metadata_are_empty_unless_given(desk: Desk) -> None:
    _, answer = await desk.calls()
    assert (answer["data"]["contextVariables"], answer["data"]["metadata"]) == ({}, {})


async def test_metadata_may_be_headers(desk: Desk) -> None:
    given = {"sip.X-Order": "Käse 7", "sip.Subject": "s", "sip.p-foo": "1", "sip.Diversion": "<sip:1@h>", "sipX": 1}
    status, answer = await desk.calls({"metadata": given})
    assert (status, answer["data"]["metadata"]) == (201, given)


# ---- what is refused, in the order of the checks ----


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"agentId": "x"}, ["agentId"]),
        ({"agentId": None}, ["agentId"]),
        ({"phoneNumberId": 7}, ["phoneNumberId"]),
        ({"to": "41441234567"}, ["to"]),
        ({"to": "+0441"}, ["to"]),
        ({"to": "+1"}, ["to"]),
        ({"to": "+1234567890123456"}, ["to"]),
        ({"to": "+123\n"}, ["to"]),
        ({"to": "+123;transport=tcp"}, ["to"]),
        ({"to": 41441234567}, ["to"]),
        ({"from": "+41"}, ["from"]),
        ({"contextVariables": None}, ["contextVariables"]),
        ({"contextVariables": []}, ["contextVariables"]),
        ({"contextVariables": {"good": 1, "first name": "x"}}, ["contextVariables.first name"]),
        ({"contextVariables": {"": "x", "é": 1}}, ["contextVariables.", "contextVariables.é"]),
        ({"contextVariables": {"a": None, "b": {}, "c": [1], "d": 1}}, [f"contextVariables.{n}" for n in "abc"]),
        ({"metadata": None}, ["metadata"]),
        ({"metadata": "x"}, ["metadata"]),
        ({"metadata": {"sip.X-A": "a\r\nVia: b", "sip.X-B": "fine"}}, ["metadata.sip.X-A"]),
        ({"metadata": {"sip.X-A": 1, "sip.X-B": "", "sip.X-C": "c" * 513}}, [f"metadata.sip.X-{n}" for n in "ABC"]),
        (
            {"metadata": {"sip.From": "a", "sip.Route": "b", "sip.": "c"}},
            [f"metadata.sip.{n}" for n in ("From", "Route", "")],
        ),
        (
            {"metadata": {"sip.X-A b": "a", "sip.X-": "a", "sip.X-A:": "a"}},
            [f"metadata.sip.X-{n}" for n in ("A b", "", "A:")],
        ),
        ({"metadata": {"sip.p-asserted-identity": "<sip:+1@h>"}}, ["metadata.sip.p-asserted-identity"]),
        ({"metadata": {f"sip.X-{n}": "a" for n in range(17)}}, ["metadata"]),
        ({"metadata": {f"sip.X-{n}": "é" * 300 for n in range(4)}}, ["metadata"]),
    ],
)
async def test_a_field_that_breaks_a_rule_is_named(desk: Desk, body: dict[str, Any], fields: list[str]) -> None:
    status, answer = await desk.calls(body)
    assert (status, answer["error"]) == (400, "Validation failed")
    assert [each["field"] for each in answer["details"]] == fields


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
async def test_a_variable_is_a_finite_number(desk: Desk, number: str) -> None:
    body = f'{{"agentId": "{desk.agent_id}", "phoneNumberId": "{desk.number.id}", "to": "{TO}", '
    body += f'"contextVariables": {{"a": {number}}}}}'
    status, answer = await desk.api("POST", "/calls", data=body.encode())
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["contextVariables.a"])


async def test_all_that_is_required_is_named_at_once(desk: Desk) -> None:
    status, answer = await desk.api("POST", "/calls", {})
    assert (status, {each["field"] for each in answer["details"]}) == (400, {"agentId", "phoneNumberId", "to"})


@pytest.mark.parametrize("desk", [{"limits": ConcurrencyLimits(organization=0)}], indirect=True)
async def test_the_checks_come_in_the_order_of_the_contract(desk: Desk) -> None:
    """Everything is wrong at first; what is checked first is put right first."""
    await desk.organization_has(plan="paid", balance=0)
    unknown = str(uuid4())
    body = {"agentId": unknown, "phoneNumberId": unknown, "to": "x"}
    steps: list[tuple[dict[str, Any], tuple[int, str]]] = [
        ({}, (400, "Validation failed")),
        ({"to": TO}, (404, "Agent not found")),
        ({"agentId": desk.agent_id}, (404, "Phone number not found")),
        ({"phoneNumberId": desk.number.id}, (402, "Insufficient funds. Please top up your balance.")),
    ]
    for right, expected in steps:
        body |= right
        status, answer = await desk.api("POST", "/calls", body)
        assert (status, answer["error"]) == expected
    await desk.organization_has(balance=0.01)
    assert await desk.api("POST", "/calls", body) == (
        429,
        {"error": "Too many concurrent calls. Please try again later."},
    )
    assert await desk.stored() == []


async def test_a_foreign_agent_and_a_foreign_number_are_unknown(desk: Desk) -> None:
    number, agent = await desk.harness.create_number("+4930200")
    for body, error in (
        ({"agentId": agent.id}, "Agent not found"),
        ({"phoneNumberId": number.id}, "Phone number not found"),
    ):
        assert await desk.calls(body) == (404, {"error": error})


@pytest.mark.parametrize(("plan", "balance", "status"), [("free", -5, 201), ("paid", 0.01, 201), ("paid", -5, 402)])
async def test_only_a_paid_plan_runs_out_of_funds(desk: Desk, plan: str, balance: float, status: int) -> None:
    await desk.organization_has(plan=plan, balance=balance)
    assert (await desk.calls())[0] == status


async def test_an_inactive_agent_makes_no_calls(desk: Desk) -> None:
    await desk.api("PATCH", f"/agents/{desk.agent_id}", {"isActive": False})
    status, answer = await desk.calls()
    assert (status, answer["details"]) == (400, [{"field": "agentId", "message": "The agent is not active"}])


async def test_a_call_from_a_number_that_none_can_go_out_from_fails(desk: Desk) -> None:
    await desk.number_has(sip_mode=None)
    status, answer = await desk.calls()
    assert (status, answer["data"]["status"]) == (201, "queued")
    ended = await desk.harness.database.until(
        lambda conn: calls.get_by_id(conn, answer["data"]["id"]), lambda call: call is not None and call.ended_at
    )
    assert (ended.status, ended.ended_reason) == ("failed", "unreachable")
    assert desk.harness.callees.called == []


# ---- limits ----


@pytest.mark.parametrize("desk", [{"limits": ConcurrencyLimits(organization=3), "per_second": 0.001}], indirect=True)
async def test_requests_at_once_do_not_pass_the_ceiling_together(desk: Desk) -> None:
    answers = await asyncio.gather(*(desk.calls() for _ in range(12)))
    assert sorted(status for status, _ in answers) == [201] * 3 + [429] * 9
    first = next(answer["data"]["id"] for status, answer in answers if status == 201)
    assert (await desk.api("POST", f"/calls/{first}/hangup"))[0] == 200
    assert [(await desk.calls())[0] for _ in range(2)] == [201, 429]


@pytest.mark.parametrize("desk", [{"limits": ConcurrencyLimits(process=1)}], indirect=True)
async def test_a_full_server_says_when_to_come_back(desk: Desk) -> None:
    assert (await desk.calls())[0] == 201
    response = await desk.api.raw("POST", "/calls", desk.least)
    assert (response.status, await response.json()) == (503, {"error": "The server is full"})
    assert response.headers["Retry-After"] == "10"


async def test_a_draining_server_takes_no_calls(desk: Desk) -> None:
    desk.harness.service.end_all()
    response = await desk.api.raw("POST", "/calls", desk.least)
    assert (response.status, response.headers["Retry-After"]) == (503, "10")


# ---- repetition ----


async def test_a_repeated_request_places_one_call(desk: Desk) -> None:
    responses = await asyncio.gather(
        *(desk.api.raw("POST", "/calls", desk.least, headers={"Idempotency-Key": "once"}) for _ in range(5))
    )
    bodies = {await response.read() for response in responses}
    assert ({response.status for response in responses}, len(bodies)) == ({201}, 1)
    await desk.callee()
    assert len(await desk.stored()) == 1
    assert len(desk.harness.callees.called) == 1


async def test_a_deleted_call_is_neither_shown_nor_placed_again_by_a_repetition(desk: Desk) -> None:
    keys = [{"Idempotency-Key": name} for name in ("deleted", "kept")]
    (_, deleted), (_, kept) = [await desk.calls({"metadata": {"said": "Zebra"}}, headers=key) for key in keys]
    path = f"/calls/{deleted['data']['id']}"
    await desk.api("POST", f"{path}/hangup")
    assert (await desk.api("DELETE", path))[0] == 200
    repeated = await desk.api.raw("POST", "/calls", desk.least, headers=keys[0])
    assert (repeated.status, await repeated.json()) == (404, {"error": "Call not found"})
    assert repeated.headers["Idempotent-Replay"] == "true"
    assert await desk.calls(headers=keys[1]) == (201, kept)
    assert [call["id"] for call in await desk.stored()] == [kept["data"]["id"]]


@pytest.mark.parametrize("desk", [{"limits": ConcurrencyLimits(organization=1)}], indirect=True)
async def test_a_request_that_found_no_place_may_be_repeated(desk: Desk) -> None:
    _, first = await desk.calls()
    headers = {"Idempotency-Key": "later"}
    assert (await desk.calls(headers=headers))[0] == 429
    await desk.api("POST", f"/calls/{first['data']['id']}/hangup")
    assert (await desk.calls(headers=headers))[0] == 201


# ---- hanging up ----


@pytest.mark.parametrize("desk", [{"per_second": 0.001}], indirect=True)
async def test_a_queued_call_is_hung_up_and_shown_as_ended(desk: Desk) -> None:
    await desk.calls()
    await desk.callee()
    _, answer = await desk.calls()
    status, answer = await desk.api("POST", f"/calls/{answer['data']['id']}/hangup")
    call = answer["data"]
    assert (status, call["status"], call["endedReason"]) == (200, "no_answer", "api_hangup")
    assert (call["durationSeconds"], call["transcript"]) == (0, [])
    assert call["endedAt"] is not None


async def test_a_live_call_is_hung_up_whichever_way_it_came(desk: Desk) -> None:
    _, answer = await desk.calls()
    there = await desk.callee()
    there.answers()
    await until(lambda: there.leg.on_digit is not None)
    phone = desk.harness.rings()
    await until(lambda: phone.leg.on_digit is not None)
    inbound = (await desk.harness.stored_call(phone)).id
    for call_id, sent in ((answer["data"]["id"], there.sent), (inbound, phone.sent)):
        status, told = await desk.api("POST", f"/calls/{call_id}/hangup")
        assert (status, told["data"]["status"], told["data"]["endedReason"]) == (200, "completed", "api_hangup")
        assert sent[-1] == -1


class NeverWrites(ScriptedLlm):
    """A model whose summary never comes. A class of its own: Python remembers of a class for good that it keeps to a
    protocol."""

    async def complete_json(self, *_: object) -> str:
        await asyncio.Event().wait()
        return ""


async def test_a_hangup_does_not_wait_for_the_summary_and_a_second_one_finds_the_call_ended(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calls.service.HANGUP_ANALYSIS_WAIT_S", 0.05)
    monkeypatch.setattr(desk.harness.llm, "__class__", NeverWrites)
    await desk.api("PATCH", f"/agents/{desk.agent_id}", {"postCallSummaryEnabled": True})
    phone = desk.harness.rings()
    await until(lambda: phone.leg.on_digit is not None)
    for key in "42":
        phone.driver.on_digit(key, "rfc4733")
    call_id = (await desk.harness.stored_call(phone)).id
    _, first = await desk.api("POST", f"/calls/{call_id}/hangup")
    told = first["data"]
    assert (told["status"], told["endedReason"], told["analysis"]) == ("completed", "api_hangup", None)
    assert told["endedAt"] is not None and told["durationSeconds"] is not None
    assert desk.harness.service.active_call_count == 0
    assert (await desk.api("GET", f"/calls/{call_id}"))[1]["data"]["status"] == "in_progress"
    assert await desk.api("POST", f"/calls/{call_id}/hangup") == (409, {"error": "Call has already ended"})
    await desk.harness.service.drain(0)
    _, closed = await desk.api("GET", f"/calls/{call_id}")
    assert (closed["data"]["status"], closed["data"]["endedAt"]) == ("completed", told["endedAt"])
    assert closed["data"]["analysis"]["error"] == "the server stopped"


async def test_an_ended_call_cannot_be_hung_up(desk: Desk) -> None:
    _, answer = await desk.calls()
    (await desk.callee()).ends(486)
    call_id = answer["data"]["id"]
    await until(lambda: not desk.harness.service.active_call_count)
    for _ in range(2):
        assert await desk.api("POST", f"/calls/{call_id}/hangup") == (409, {"error": "Call has already ended"})


async def test_hanging_up_twice_at_once_is_no_fault(desk: Desk) -> None:
    _, answer = await desk.calls()
    (await desk.callee()).rings()
    answers = await asyncio.gather(*(desk.api("POST", f"/calls/{answer['data']['id']}/hangup") for _ in range(4)))
    assert {status for status, _ in answers} <= {200, 409}
    ends = [told["data"]["endedReason"] for status, told in answers if status == 200]
    assert ends
    assert set(ends) == {"api_hangup"}


async def test_a_repeated_hangup_with_the_same_key_gets_the_first_answer(desk: Desk) -> None:
    _, answer = await desk.calls()
    path, headers = f"/calls/{answer['data']['id']}/hangup", {"Idempotency-Key": "bye"}
    first = await desk.api("POST", path, headers=headers)
    assert first[0] == 200
    assert await desk.api("POST", path, headers=headers) == first


async def test_an_unknown_or_foreign_call_is_not_found(desk: Desk) -> None:
    _, answer = await desk.calls()
    there = await desk.callee()
    other = await desk.harness.database.write(lambda conn: organizations.create(conn, "other").id)
    key = await desk.harness.database.write(lambda conn: api_keys.create(conn, other, requests_per_minute=100)[1])
    foreign = Api(desk.api.client, desk.api.services, other, key, desk.api.trouble, [])
    for api, call_id in ((desk.api, str(uuid4())), (desk.api, "x"), (foreign, answer["data"]["id"])):
        assert await api("POST", f"/calls/{call_id}/hangup") == (404, {"error": "Call not found"})
    assert there.sent == []
