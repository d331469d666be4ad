"""Permitted destinations, calls per minute, and the audit log of POST /calls."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.outbound.permissions import RATE_WINDOW, rate_limit_wait_s
from storage import tables
from storage.accounts import api_keys, organizations
from storage.calls import outbound_audit
from storage.calls.outbound_audit import AttemptWithCall
from tests.api.outbound_client import TO, OutboundClient, outbound

__all__ = ["outbound"]
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
NO_DESTINATION = "Must be an E.164 number, as +41441234567, or an extension of 2 to 7 digits, as 100"
FORBIDDEN = {
    "error": "Validation failed",
    "details": [{"field": "to", "message": "Calls from this number may not go there"}],
}


async def log_of(outbound: OutboundClient) -> list[AttemptWithCall]:
    """The audit log of the organization, oldest first."""
    owner = outbound.api.organization_id
    return list(
        await outbound.harness.database.read(
            lambda conn: outbound_audit.page_after(conn, owner, BEGINNING, "", limit=1000)
        )
    )


async def verdicts(outbound: OutboundClient) -> list[str]:
    """The verdicts of the audit log, oldest first."""
    return [each.attempt.verdict for each in await log_of(outbound)]


async def test_an_extension_is_dialled_as_it_is_if_a_prefix_permits_it(outbound: OutboundClient) -> None:
    await outbound.update_organization(outbound_prefixes=["+41", "2"])
    assert (await outbound.post_call({"to": "2000000"}))[0] == 201
    assert (await outbound.post_call({"to": "100"})) == (400, FORBIDDEN)
    assert [each["customerNumber"] for each in await outbound.list_calls()] == ["2000000"]
    assert await verdicts(outbound) == ["queued", "refused_prefix"]


async def test_a_destination_must_be_permitted_by_organization_and_number(outbound: OutboundClient) -> None:
    await outbound.update_organization(outbound_prefixes=["+41", "+49"])
    assert (await outbound.post_call({"to": "+18005550100"})) == (400, FORBIDDEN)
    await outbound.update_number(outbound_prefixes=["+4930", "+1"])
    assert (await outbound.post_call({"to": TO})) == (400, FORBIDDEN)
    assert (await outbound.post_call({"to": "+18005550100"})) == (400, FORBIDDEN)
    assert (await outbound.post_call({"to": "+49302000"}))[0] == 201
    await outbound.wait_for_callee()
    await outbound.update_organization(outbound_prefixes=[])
    assert (await outbound.post_call({"to": "+49302000"})) == (400, FORBIDDEN)
    assert await verdicts(outbound) == ["refused_prefix"] * 3 + ["queued", "refused_prefix"]
    assert [each["customerNumber"] for each in await outbound.list_calls()] == ["+49302000"]


async def test_prefixes_are_checked_after_the_number_and_before_the_balance(outbound: OutboundClient) -> None:
    await outbound.update_organization(outbound_prefixes=["+49"], plan="paid", balance=0)
    assert (await outbound.post_call({"phoneNumberId": UNKNOWN}))[0] == 404
    assert (await outbound.post_call())[0] == 400
    assert (await outbound.post_call({"to": "+49302000"}))[0] == 402
    assert await verdicts(outbound) == ["refused_request", "refused_prefix", "refused_funds"]


@pytest.mark.parametrize("whose", ["number", "organization"])
async def test_calls_per_minute_are_limited(outbound: OutboundClient, whose: str) -> None:
    change = outbound.update_number if whose == "number" else outbound.update_organization
    await change(outbound_per_minute=3)
    answers = await asyncio.gather(*(outbound.post_call() for _ in range(8)))
    assert sorted(status for status, _ in answers) == [201] * 3 + [429] * 5
    refusal = next(answer for status, answer in answers if status == 429)
    assert refusal == {"error": "Too many calls per minute. Please try again later.", "retryAfter": 60}
    response = await outbound.api.raw("POST", "/calls", outbound.minimal_body)
    assert 1 <= int(response.headers["Retry-After"]) <= 60
    assert sorted(await verdicts(outbound)) == ["queued"] * 3 + ["refused_rate"] * 6
    await change(outbound_per_minute=4)
    assert (await outbound.post_call())[0] == 201


async def test_a_call_counts_for_60_seconds(outbound: OutboundClient) -> None:
    await outbound.update_organization(outbound_per_minute=1)
    await outbound.post_call()
    created = (await log_of(outbound))[0].attempt.created_at
    organization = await outbound.harness.database.read(
        lambda conn: organizations.get(conn, outbound.api.organization_id)
    )
    assert organization is not None

    async def wait_at(now: datetime) -> int | None:
        return await outbound.harness.database.read(
            lambda conn: rate_limit_wait_s(conn, outbound.number, organization, now)
        )

    assert await wait_at(created) == 60
    assert await wait_at(created + 0.5 * RATE_WINDOW) == 30
    assert await wait_at(created + 0.999 * RATE_WINDOW) == 1
    assert await wait_at(created + RATE_WINDOW) is None


async def test_a_call_of_another_number_counts_only_for_the_organization(outbound: OutboundClient) -> None:
    other = await outbound.api.create("/phone-numbers", {"number": "200", "provider": "sip"})
    await outbound.update_number(outbound_per_minute=1)
    assert (await outbound.post_call({"phoneNumberId": other["id"]}))[0] == 201
    assert (await outbound.post_call())[0] == 201
    await outbound.update_organization(outbound_per_minute=2)
    assert (await outbound.post_call({"phoneNumberId": other["id"]}))[0] == 429


async def test_a_repeated_request_counts_once(outbound: OutboundClient) -> None:
    await outbound.update_organization(outbound_per_minute=2)
    for _ in range(3):
        status, _ = await outbound.post_call(headers={"Idempotency-Key": "once"})
        assert status == 201
    assert (await outbound.post_call())[0] == 201
    rejected_body = {"to": "+18005550100"}
    await outbound.update_organization(outbound_prefixes=["+41"])
    for _ in range(2):
        assert (await outbound.post_call(rejected_body, headers={"Idempotency-Key": "refused"}))[0] == 400
    assert await verdicts(outbound) == ["queued", "queued", "refused_prefix"]


async def test_the_audit_log_has_key_destination_client_and_end_of_a_call(outbound: OutboundClient) -> None:
    with capture_logs() as lines:
        _, answer = await outbound.post_call()
    call = answer["data"]
    [entry] = await log_of(outbound)
    [key] = await outbound.harness.database.read(lambda conn: api_keys.all_of(conn, outbound.api.organization_id))
    attempt = entry.attempt
    assert (attempt.verdict, attempt.call_id, attempt.destination) == ("queued", call["id"], TO)
    assert (attempt.api_key_id, attempt.client, attempt.api_key_prefix) == (key.id, "127.0.0.1", key.prefix)
    assert (attempt.phone_number_id, attempt.number) == (outbound.number.id, outbound.number.number)
    line = next(each for each in lines if each["event"] == "outbound.attempt")
    assert (line["verdict"], line["call_id"], line["api_key_id"]) == ("queued", call["id"], key.id)
    await outbound.api("POST", f"/calls/{call['id']}/hangup")
    [entry] = await log_of(outbound)
    assert entry.call_status == "no_answer, api_hangup"


UNKNOWN = "0b9f6f7e-3c1d-4d5e-8f60-718293a4b5c6"


@pytest.mark.parametrize(
    ("body", "status", "destination", "detail"),
    [
        ({"phoneNumberId": UNKNOWN}, 404, TO, "Phone number not found"),
        ({"agentId": UNKNOWN}, 404, TO, "Agent not found"),
        ({"to": "0049 900 1"}, 400, "0049 900 1", f"to: {NO_DESTINATION}"),
        ({"to": "\x1b[31m+49\r\n1"}, 400, "[31m+491", f"to: {NO_DESTINATION}"),
        ({"to": "9" * 5000}, 400, "9" * 64, f"to: {NO_DESTINATION}"),
        ({"to": 49900}, 400, "49900", "to: Must be a valid string"),
        ({"to": ["+49900"]}, 400, '["+49900"]', "to: Must be a valid string"),
        ({"agentId": "x"}, 400, TO, "agentId: Must be a UUID"),
        ({"phoneNumberId": "x"}, 400, TO, "phoneNumberId: Must be a UUID"),
        ({"phoneNumberId": None, "metadata": {"sip.From": "x"}}, 400, TO, None),
        ({"contextVariables": "x" * 100_000}, 400, TO, None),
    ],
)
async def test_every_rejected_request_with_a_destination_is_in_the_audit_log(
    outbound: OutboundClient, body: dict[str, Any], status: int, destination: str, detail: str | None
) -> None:
    assert (await outbound.post_call(body))[0] == status
    [entry] = await log_of(outbound)
    [key] = await outbound.harness.database.read(lambda conn: api_keys.all_of(conn, outbound.api.organization_id))
    attempt = entry.attempt
    assert (attempt.verdict, attempt.destination, attempt.call_id) == ("refused_request", destination, None)
    assert (attempt.api_key_id, attempt.api_key_prefix, attempt.client) == (key.id, key.prefix, "127.0.0.1")
    number_id = {"phoneNumberId": outbound.number.id, **body}["phoneNumberId"]
    assert attempt.phone_number_id == (None if number_id in ("x", None) else number_id)
    assert attempt.number == (outbound.number.number if number_id == outbound.number.id else None)
    assert attempt.detail
    assert len(attempt.detail) <= 200
    assert detail in (None, attempt.detail)


async def test_a_request_with_an_inactive_agent_is_in_the_audit_log(outbound: OutboundClient) -> None:
    await outbound.api("PATCH", f"/agents/{outbound.agent_id}", {"isActive": False})
    assert (await outbound.post_call())[0] == 400
    [entry] = await log_of(outbound)
    assert (entry.attempt.verdict, entry.attempt.detail) == ("refused_request", "agentId: The agent is not active")


async def test_the_audit_log_does_not_have_the_number_of_another_organization(outbound: OutboundClient) -> None:
    other = await outbound.api.as_another_organization()
    theirs = await other.create("/phone-numbers", {"number": "+49999", "provider": "sip"})
    for body in ({"phoneNumberId": theirs["id"]}, {"phoneNumberId": theirs["id"], "agentId": "x"}):
        assert (await outbound.post_call(body))[0] in (400, 404)
    assert [(each.attempt.phone_number_id, each.attempt.number) for each in await log_of(outbound)] == [
        (theirs["id"], None)
    ] * 2


@pytest.mark.parametrize("body", [b"{", b"[]", b'"+49900"', b"{}", b'{"to": null}', b'{"to": ""}'])
async def test_a_body_without_a_destination_is_not_in_the_audit_log(outbound: OutboundClient, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    assert (await outbound.api.raw("POST", "/calls", data=body, headers=headers)).status == 400
    assert await log_of(outbound) == []


async def test_a_repeated_rejection_by_idempotency_key_is_in_the_audit_log_once(outbound: OutboundClient) -> None:
    for _ in range(2):
        assert (await outbound.post_call({"to": "1"}, headers={"Idempotency-Key": "malformed"}))[0] == 400
    assert await verdicts(outbound) == ["refused_request"]


async def test_a_request_over_the_rate_limit_is_not_in_the_audit_log(outbound: OutboundClient) -> None:
    change = sa.update(tables.api_keys).values(requests_per_minute=2)
    await outbound.harness.database.write(lambda conn: conn.execute(change))
    assert [(await outbound.post_call())[0] for _ in range(4)] == [201, 201, 429, 429]
    assert await verdicts(outbound) == ["queued", "queued"]


async def test_the_audit_log_has_number_and_key_after_both_are_deleted(outbound: OutboundClient) -> None:
    await outbound.post_call()
    [key] = await outbound.harness.database.read(lambda conn: api_keys.all_of(conn, outbound.api.organization_id))
    assert (await outbound.api("DELETE", f"/phone-numbers/{outbound.number.id}"))[0] == 200
    await outbound.harness.database.write(lambda conn: conn.execute(sa.delete(tables.api_keys)))
    entries = await log_of(outbound)
    assert {(each.attempt.number, each.attempt.api_key_prefix) for each in entries} == {
        (outbound.number.number, key.prefix)
    }


async def test_a_call_without_capacity_is_in_the_audit_log(outbound: OutboundClient) -> None:
    await outbound.update_organization(max_calls=1)
    assert [(await outbound.post_call())[0] for _ in range(2)] == [201, 429]
    [_, rejected] = await log_of(outbound)
    assert (rejected.attempt.verdict, rejected.attempt.call_id) == ("refused_ceiling", None)
    assert rejected.attempt.detail == "Too many concurrent calls. Please try again later."


async def test_a_request_is_rejected_also_when_the_audit_log_cannot_be_written(
    outbound: OutboundClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await outbound.update_organization(outbound_prefixes=["+49"])

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no disk")

    monkeypatch.setattr(outbound_audit, "record", broken)
    with capture_logs() as lines:
        assert (await outbound.post_call()) == (400, FORBIDDEN)
    assert [each["event"] for each in lines if each["log_level"] == "error"] == ["api.refusal_not_noted"]


async def test_a_call_with_a_revoked_key_is_rejected_and_not_in_the_audit_log(outbound: OutboundClient) -> None:
    await outbound.post_call()
    await outbound.wait_for_callee()
    await outbound.harness.database.write(
        lambda conn: [api_keys.revoke(conn, each.id) for each in api_keys.all_of(conn, outbound.api.organization_id)]
    )
    assert (await outbound.post_call())[0] == 401
    assert await verdicts(outbound) == ["queued"]
