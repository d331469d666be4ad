"""POST /calls and POST /calls/{id}/hangup with the real call service; only SIP is a fake."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from calls.admission.concurrency_limits import ConcurrencyLimits
from storage.accounts import api_keys, organizations
from storage.calls import calls
from tests.api.conftest import Api
from tests.api.outbound_client import TO, OutboundClient, outbound
from tests.calls.call_service_harness import until
from tests.fakes.scripted_call import ScriptedLlm

__all__ = ["outbound"]

# ---- what is created ----


async def test_a_call_is_queued_returned_completely_and_placed(outbound: OutboundClient) -> None:
    variables = {"first_name": "Ann", "Age2": 36, "share": 0.5, "vip": True, "_": ""}
    status, answer = await outbound.post_call({"contextVariables": variables, "metadata": {"order": {"n": [7]}}})
    call = answer["data"]
    assert status == 201
    assert (call["status"], call["direction"], call["customerNumber"]) == ("queued", "outbound", TO)
    assert (call["agentId"], call["phoneNumberId"]) == (outbound.agent_id, outbound.number.id)
    assert (call["contextVariables"], call["metadata"]) == (variables, {"order": {"n": [7]}})
    assert (call["provider"], call["organizationId"]) == ("sip", outbound.api.organization_id)
    assert (call["transcript"], call["analysis"], call["transferCalls"], call["turnCount"]) == ([], None, [], 0)
    for unknown in ("callSid", "startedAt", "endedAt", "endedReason", "durationSeconds", "recordingUrl"):
        assert call[unknown] is None
    there = await outbound.wait_for_callee()
    _, answer = await outbound.api("GET", f"/calls/{call['id']}")
    assert answer["data"] == {**call, "callSid": there.leg.sip_call_id}


async def test_variables_and_metadata_are_empty_by_default(outbound: OutboundClient) -> None:
    _, answer = await outbound.post_call()
    assert (answer["data"]["contextVariables"], answer["data"]["metadata"]) == ({}, {})


async def test_metadata_may_be_sip_headers(outbound: OutboundClient) -> None:
    given = {"sip.X-Order": "Käse 7", "sip.Subject": "s", "sip.p-foo": "1", "sip.Diversion": "<sip:1@h>", "sipX": 1}
    status, answer = await outbound.post_call({"metadata": given})
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
async def test_a_field_that_breaks_a_rule_is_named(
    outbound: OutboundClient, body: dict[str, Any], fields: list[str]
) -> None:
    status, answer = await outbound.post_call(body)
    assert (status, answer["error"]) == (400, "Validation failed")
    assert [each["field"] for each in answer["details"]] == fields


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
async def test_a_variable_is_a_finite_number(outbound: OutboundClient, number: str) -> None:
    body = f'{{"agentId": "{outbound.agent_id}", "phoneNumberId": "{outbound.number.id}", "to": "{TO}", '
    body += f'"contextVariables": {{"a": {number}}}}}'
    status, answer = await outbound.api("POST", "/calls", data=body.encode())
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["contextVariables.a"])


async def test_all_missing_fields_are_named_at_once(outbound: OutboundClient) -> None:
    status, answer = await outbound.api("POST", "/calls", {})
    assert (status, {each["field"] for each in answer["details"]}) == (400, {"agentId", "phoneNumberId", "to"})


@pytest.mark.parametrize("outbound", [{"limits": ConcurrencyLimits(organization=0)}], indirect=True)
async def test_checks_run_in_the_order_of_the_contract(outbound: OutboundClient) -> None:
    """Everything is wrong at first; each step corrects what is checked next."""
    await outbound.update_organization(plan="paid", balance=0)
    unknown = str(uuid4())
    body = {"agentId": unknown, "phoneNumberId": unknown, "to": "x"}
    steps: list[tuple[dict[str, Any], tuple[int, str]]] = [
        ({}, (400, "Validation failed")),
        ({"to": TO}, (404, "Agent not found")),
        ({"agentId": outbound.agent_id}, (404, "Phone number not found")),
        ({"phoneNumberId": outbound.number.id}, (402, "Insufficient funds. Please top up your balance.")),
    ]
    for right, expected in steps:
        body |= right
        status, answer = await outbound.api("POST", "/calls", body)
        assert (status, answer["error"]) == expected
    await outbound.update_organization(balance=0.01)
    assert await outbound.api("POST", "/calls", body) == (
        429,
        {"error": "Too many concurrent calls. Please try again later."},
    )
    assert await outbound.list_calls() == []


async def test_agent_and_number_of_another_organization_are_not_found(outbound: OutboundClient) -> None:
    number, agent = await outbound.harness.create_number("+4930200")
    for body, error in (
        ({"agentId": agent.id}, "Agent not found"),
        ({"phoneNumberId": number.id}, "Phone number not found"),
    ):
        assert await outbound.post_call(body) == (404, {"error": error})


@pytest.mark.parametrize(("plan", "balance", "status"), [("free", -5, 201), ("paid", 0.01, 201), ("paid", -5, 402)])
async def test_only_a_paid_plan_runs_out_of_funds(
    outbound: OutboundClient, plan: str, balance: float, status: int
) -> None:
    await outbound.update_organization(plan=plan, balance=balance)
    assert (await outbound.post_call())[0] == status


async def test_an_inactive_agent_makes_no_calls(outbound: OutboundClient) -> None:
    await outbound.api("PATCH", f"/agents/{outbound.agent_id}", {"isActive": False})
    status, answer = await outbound.post_call()
    assert (status, answer["details"]) == (400, [{"field": "agentId", "message": "The agent is not active"}])


async def test_a_call_from_a_number_without_a_usable_trunk_fails(outbound: OutboundClient) -> None:
    await outbound.update_number(sip_mode=None)
    status, answer = await outbound.post_call()
    assert (status, answer["data"]["status"]) == (201, "queued")
    ended = await outbound.harness.database.until(
        lambda conn: calls.get_by_id(conn, answer["data"]["id"]),
        lambda call: call is not None and call.ended_at is not None,
    )
    assert ended is not None
    assert (ended.status, ended.ended_reason) == ("failed", "unreachable")
    assert outbound.harness.callees.dialled == []


# ---- limits ----


@pytest.mark.parametrize(
    "outbound", [{"limits": ConcurrencyLimits(organization=3), "per_second": 0.001}], indirect=True
)
async def test_concurrent_requests_do_not_exceed_the_call_limit(outbound: OutboundClient) -> None:
    answers = await asyncio.gather(*(outbound.post_call() for _ in range(12)))
    assert sorted(status for status, _ in answers) == [201] * 3 + [429] * 9
    first = next(answer["data"]["id"] for status, answer in answers if status == 201)
    assert (await outbound.api("POST", f"/calls/{first}/hangup"))[0] == 200
    assert [(await outbound.post_call())[0] for _ in range(2)] == [201, 429]


@pytest.mark.parametrize("outbound", [{"limits": ConcurrencyLimits(process=1)}], indirect=True)
async def test_a_full_server_sends_retry_after(outbound: OutboundClient) -> None:
    assert (await outbound.post_call())[0] == 201
    response = await outbound.api.raw("POST", "/calls", outbound.minimal_body)
    assert (response.status, await response.json()) == (503, {"error": "The server is full"})
    assert response.headers["Retry-After"] == "10"


async def test_a_draining_server_takes_no_calls(outbound: OutboundClient) -> None:
    outbound.harness.service.end_all()
    response = await outbound.api.raw("POST", "/calls", outbound.minimal_body)
    assert (response.status, response.headers["Retry-After"]) == (503, "10")


# ---- repetition ----


async def test_a_repeated_request_places_one_call(outbound: OutboundClient) -> None:
    responses = await asyncio.gather(
        *(
            outbound.api.raw("POST", "/calls", outbound.minimal_body, headers={"Idempotency-Key": "once"})
            for _ in range(5)
        )
    )
    bodies = {await response.read() for response in responses}
    assert ({response.status for response in responses}, len(bodies)) == ({201}, 1)
    await outbound.wait_for_callee()
    assert len(await outbound.list_calls()) == 1
    assert len(outbound.harness.callees.dialled) == 1


async def test_a_deleted_call_is_neither_shown_nor_placed_again_by_a_repetition(outbound: OutboundClient) -> None:
    keys = [{"Idempotency-Key": name} for name in ("deleted", "kept")]
    (_, deleted), (_, kept) = [await outbound.post_call({"metadata": {"said": "Zebra"}}, headers=key) for key in keys]
    path = f"/calls/{deleted['data']['id']}"
    await outbound.api("POST", f"{path}/hangup")
    assert (await outbound.api("DELETE", path))[0] == 200
    repeated = await outbound.api.raw("POST", "/calls", outbound.minimal_body, headers=keys[0])
    assert (repeated.status, await repeated.json()) == (404, {"error": "Call not found"})
    assert repeated.headers["Idempotent-Replay"] == "true"
    assert await outbound.post_call(headers=keys[1]) == (201, kept)
    assert [call["id"] for call in await outbound.list_calls()] == [kept["data"]["id"]]


@pytest.mark.parametrize("outbound", [{"limits": ConcurrencyLimits(organization=1)}], indirect=True)
async def test_a_request_without_capacity_may_be_repeated(outbound: OutboundClient) -> None:
    _, first = await outbound.post_call()
    headers = {"Idempotency-Key": "later"}
    assert (await outbound.post_call(headers=headers))[0] == 429
    await outbound.api("POST", f"/calls/{first['data']['id']}/hangup")
    assert (await outbound.post_call(headers=headers))[0] == 201


# ---- hanging up ----


@pytest.mark.parametrize("outbound", [{"per_second": 0.001}], indirect=True)
async def test_a_queued_call_is_hung_up_and_shown_as_ended(outbound: OutboundClient) -> None:
    await outbound.post_call()
    await outbound.wait_for_callee()
    _, answer = await outbound.post_call()
    status, answer = await outbound.api("POST", f"/calls/{answer['data']['id']}/hangup")
    call = answer["data"]
    assert (status, call["status"], call["endedReason"]) == (200, "no_answer", "api_hangup")
    assert (call["durationSeconds"], call["transcript"]) == (0, [])
    assert call["endedAt"] is not None


async def test_live_inbound_and_outbound_calls_are_hung_up(outbound: OutboundClient) -> None:
    _, answer = await outbound.post_call()
    there = await outbound.wait_for_callee()
    there.answers()
    await until(lambda: there.leg.on_digit is not None)
    phone = outbound.harness.invite()
    await until(lambda: phone.leg.on_digit is not None)
    inbound = (await outbound.harness.stored_call(phone)).id
    for call_id, sent in ((answer["data"]["id"], there.sent), (inbound, phone.sent)):
        status, call = await outbound.api("POST", f"/calls/{call_id}/hangup")
        assert (status, call["data"]["status"], call["data"]["endedReason"]) == (200, "completed", "api_hangup")
        assert sent[-1] == -1


class NeverWrites(ScriptedLlm):
    """A model whose summary never comes. It is a class of its own, because Python caches for each class whether it
    implements a protocol."""

    async def complete_json(self, *_: object) -> str:
        await asyncio.Event().wait()
        return ""


async def test_a_hangup_does_not_wait_for_the_summary_and_a_second_one_finds_the_call_ended(
    outbound: OutboundClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calls.service.HANGUP_ANALYSIS_WAIT_S", 0.05)
    monkeypatch.setattr(outbound.harness.llm, "__class__", NeverWrites)
    await outbound.api("PATCH", f"/agents/{outbound.agent_id}", {"postCallSummaryEnabled": True})
    phone = outbound.harness.invite()
    await until(lambda: phone.leg.on_digit is not None)
    for key in "42":
        phone.driver.on_digit(key, "rfc4733")
    call_id = (await outbound.harness.stored_call(phone)).id
    _, first = await outbound.api("POST", f"/calls/{call_id}/hangup")
    call = first["data"]
    assert (call["status"], call["endedReason"], call["analysis"]) == ("completed", "api_hangup", None)
    assert call["endedAt"] is not None and call["durationSeconds"] is not None
    assert outbound.harness.service.active_call_count == 0
    assert (await outbound.api("GET", f"/calls/{call_id}"))[1]["data"]["status"] == "in_progress"
    assert await outbound.api("POST", f"/calls/{call_id}/hangup") == (409, {"error": "Call has already ended"})
    await outbound.harness.service.drain(0)
    _, closed = await outbound.api("GET", f"/calls/{call_id}")
    assert (closed["data"]["status"], closed["data"]["endedAt"]) == ("completed", call["endedAt"])
    assert closed["data"]["analysis"]["error"] == "the server stopped"


async def test_an_ended_call_cannot_be_hung_up(outbound: OutboundClient) -> None:
    _, answer = await outbound.post_call()
    (await outbound.wait_for_callee()).ends(486)
    call_id = answer["data"]["id"]
    await until(lambda: not outbound.harness.service.active_call_count)
    for _ in range(2):
        assert await outbound.api("POST", f"/calls/{call_id}/hangup") == (409, {"error": "Call has already ended"})


async def test_two_concurrent_hangups_are_no_error(outbound: OutboundClient) -> None:
    _, answer = await outbound.post_call()
    (await outbound.wait_for_callee()).rings()
    answers = await asyncio.gather(*(outbound.api("POST", f"/calls/{answer['data']['id']}/hangup") for _ in range(4)))
    assert {status for status, _ in answers} <= {200, 409}
    ends = [call["data"]["endedReason"] for status, call in answers if status == 200]
    assert ends
    assert set(ends) == {"api_hangup"}


async def test_a_repeated_hangup_with_the_same_key_gets_the_first_answer(outbound: OutboundClient) -> None:
    _, answer = await outbound.post_call()
    path, headers = f"/calls/{answer['data']['id']}/hangup", {"Idempotency-Key": "bye"}
    first = await outbound.api("POST", path, headers=headers)
    assert first[0] == 200
    assert await outbound.api("POST", path, headers=headers) == first


async def test_an_unknown_call_and_one_of_another_organization_are_not_found(outbound: OutboundClient) -> None:
    _, answer = await outbound.post_call()
    there = await outbound.wait_for_callee()
    other = await outbound.harness.database.write(lambda conn: organizations.create(conn, "other").id)
    key = await outbound.harness.database.write(lambda conn: api_keys.create(conn, other, requests_per_minute=100)[1])
    foreign = Api(outbound.api.client, outbound.api.services, other, key, outbound.api.readiness, [])
    for api, call_id in ((outbound.api, str(uuid4())), (outbound.api, "x"), (foreign, answer["data"]["id"])):
        assert await api("POST", f"/calls/{call_id}/hangup") == (404, {"error": "Call not found"})
    assert there.sent == []
