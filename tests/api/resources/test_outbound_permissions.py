"""Who may call where and how often, and the audit log that tells of every wish to call somebody."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.outbound.permissions import MINUTE, rate_limit_wait_s
from storage import tables
from storage.accounts import api_keys, organizations
from storage.calls import outbound_audit
from storage.calls.outbound_audit import AttemptWithCall
from tests.api.outbound_client import TO, Desk, desk

__all__ = ["desk"]
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
FORBIDDEN = {
    "error": "Validation failed",
    "details": [{"field": "to", "message": "Calls from this number may not go there"}],
}


async def log_of(desk: Desk) -> list[AttemptWithCall]:
    """The audit log of the organization, oldest first."""
    owner = desk.api.organization_id
    return list(
        await desk.harness.database.read(lambda conn: outbound_audit.page_after(conn, owner, BEGINNING, "", limit=1000))
    )


async def verdicts(desk: Desk) -> list[str]:
    """What came of the wishes, oldest first."""
    return [each.attempt.verdict for each in await log_of(desk)]


async def test_a_call_goes_only_where_the_organization_and_the_number_may_call(desk: Desk) -> None:
    await desk.organization_has(outbound_prefixes=["+41", "+49"])
    assert (await desk.calls({"to": "+18005550100"})) == (400, FORBIDDEN)
    await desk.number_has(outbound_prefixes=["+4930", "+1"])
    assert (await desk.calls({"to": TO})) == (400, FORBIDDEN)
    assert (await desk.calls({"to": "+18005550100"})) == (400, FORBIDDEN)
    assert (await desk.calls({"to": "+49302000"}))[0] == 201
    await desk.callee()
    await desk.organization_has(outbound_prefixes=[])
    assert (await desk.calls({"to": "+49302000"})) == (400, FORBIDDEN)
    assert await verdicts(desk) == ["refused_prefix"] * 3 + ["queued", "refused_prefix"]
    assert [each["customerNumber"] for each in await desk.stored()] == ["+49302000"]


async def test_prefixes_are_asked_after_the_number_and_before_the_balance(desk: Desk) -> None:
    await desk.organization_has(outbound_prefixes=["+49"], plan="paid", balance=0)
    assert (await desk.calls({"phoneNumberId": UNKNOWN}))[0] == 404
    assert (await desk.calls())[0] == 400
    assert (await desk.calls({"to": "+49302000"}))[0] == 402
    assert await verdicts(desk) == ["refused_request", "refused_prefix", "refused_funds"]


@pytest.mark.parametrize("whose", ["number", "organization"])
async def test_no_more_calls_a_minute_than_the_cap_says(desk: Desk, whose: str) -> None:
    change = desk.number_has if whose == "number" else desk.organization_has
    await change(outbound_per_minute=3)
    answers = await asyncio.gather(*(desk.calls() for _ in range(8)))
    assert sorted(status for status, _ in answers) == [201] * 3 + [429] * 5
    refusal = next(answer for status, answer in answers if status == 429)
    assert refusal == {"error": "Too many calls per minute. Please try again later.", "retryAfter": 60}
    response = await desk.api.raw("POST", "/calls", desk.least)
    assert 1 <= int(response.headers["Retry-After"]) <= 60
    assert sorted(await verdicts(desk)) == ["queued"] * 3 + ["refused_rate"] * 6
    await change(outbound_per_minute=4)
    assert (await desk.calls())[0] == 201


async def test_a_call_counts_for_60_seconds(desk: Desk) -> None:
    await desk.organization_has(outbound_per_minute=1)
    await desk.calls()
    made = (await log_of(desk))[0].attempt.created_at
    organization = await desk.harness.database.read(lambda conn: organizations.get(conn, desk.api.organization_id))
    assert organization is not None

    async def wait_at(now: datetime) -> int | None:
        return await desk.harness.database.read(lambda conn: rate_limit_wait_s(conn, desk.number, organization, now))

    assert await wait_at(made) == 60
    assert await wait_at(made + 0.5 * MINUTE) == 30
    assert await wait_at(made + 0.999 * MINUTE) == 1
    assert await wait_at(made + MINUTE) is None


async def test_a_call_of_another_number_counts_for_the_organization_alone(desk: Desk) -> None:
    other = await desk.api.made("/phone-numbers", {"number": "200", "provider": "sip"})
    await desk.number_has(outbound_per_minute=1)
    assert (await desk.calls({"phoneNumberId": other["id"]}))[0] == 201
    assert (await desk.calls())[0] == 201
    await desk.organization_has(outbound_per_minute=2)
    assert (await desk.calls({"phoneNumberId": other["id"]}))[0] == 429


async def test_a_request_that_is_sent_again_counts_once(desk: Desk) -> None:
    await desk.organization_has(outbound_per_minute=2)
    for _ in range(3):
        status, _ = await desk.calls(headers={"Idempotency-Key": "once"})
        assert status == 201
    assert (await desk.calls())[0] == 201
    refused = {"to": "+18005550100"}
    await desk.organization_has(outbound_prefixes=["+41"])
    for _ in range(2):
        assert (await desk.calls(refused, headers={"Idempotency-Key": "refused"}))[0] == 400
    assert await verdicts(desk) == ["queued", "queued", "refused_prefix"]


async def test_the_log_tells_who_called_whom_from_where_and_how_it_ended(desk: Desk) -> None:
    with capture_logs() as lines:
        _, answer = await desk.calls()
    call = answer["data"]
    [told] = await log_of(desk)
    [key] = await desk.harness.database.read(lambda conn: api_keys.all_of(conn, desk.api.organization_id))
    attempt = told.attempt
    assert (attempt.verdict, attempt.call_id, attempt.destination) == ("queued", call["id"], TO)
    assert (attempt.api_key_id, attempt.client, attempt.api_key_prefix) == (key.id, "127.0.0.1", key.prefix)
    assert (attempt.phone_number_id, attempt.number) == (desk.number.id, desk.number.number)
    line = next(each for each in lines if each["event"] == "outbound.attempt")
    assert (line["verdict"], line["call_id"], line["api_key_id"]) == ("queued", call["id"], key.id)
    await desk.api("POST", f"/calls/{call['id']}/hangup")
    [told] = await log_of(desk)
    assert told.call_status == "no_answer, api_hangup"


UNKNOWN = "0b9f6f7e-3c1d-4d5e-8f60-718293a4b5c6"


@pytest.mark.parametrize(
    ("body", "status", "destination", "detail"),
    [
        ({"phoneNumberId": UNKNOWN}, 404, TO, "Phone number not found"),
        ({"agentId": UNKNOWN}, 404, TO, "Agent not found"),
        ({"to": "0049 900 1"}, 400, "0049 900 1", "to: Must be an E.164 number, as +41441234567"),
        ({"to": "\x1b[31m+49\r\n1"}, 400, "[31m+491", "to: Must be an E.164 number, as +41441234567"),
        ({"to": "9" * 5000}, 400, "9" * 64, "to: Must be an E.164 number, as +41441234567"),
        ({"to": 49900}, 400, "49900", "to: Must be a valid string"),
        ({"to": ["+49900"]}, 400, '["+49900"]', "to: Must be a valid string"),
        ({"agentId": "x"}, 400, TO, "agentId: Must be a UUID"),
        ({"phoneNumberId": "x"}, 400, TO, "phoneNumberId: Must be a UUID"),
        ({"phoneNumberId": None, "metadata": {"sip.From": "x"}}, 400, TO, None),
        ({"contextVariables": "x" * 100_000}, 400, TO, None),
    ],
)
async def test_a_request_that_names_a_destination_is_in_the_log_whatever_it_is_refused_for(
    desk: Desk, body: dict[str, Any], status: int, destination: str, detail: str | None
) -> None:
    assert (await desk.calls(body))[0] == status
    [told] = await log_of(desk)
    [key] = await desk.harness.database.read(lambda conn: api_keys.all_of(conn, desk.api.organization_id))
    attempt = told.attempt
    assert (attempt.verdict, attempt.destination, attempt.call_id) == ("refused_request", destination, None)
    assert (attempt.api_key_id, attempt.api_key_prefix, attempt.client) == (key.id, key.prefix, "127.0.0.1")
    wanted = {"phoneNumberId": desk.number.id, **body}["phoneNumberId"]
    assert attempt.phone_number_id == (None if wanted in ("x", None) else wanted)
    assert attempt.number == (desk.number.number if wanted == desk.number.id else None)
    assert attempt.detail
    assert len(attempt.detail) <= 200
    assert detail in (None, attempt.detail)


async def test_an_agent_that_is_not_active_is_in_the_log(desk: Desk) -> None:
    await desk.api("PATCH", f"/agents/{desk.agent_id}", {"isActive": False})
    assert (await desk.calls())[0] == 400
    [told] = await log_of(desk)
    assert (told.attempt.verdict, told.attempt.detail) == ("refused_request", "agentId: The agent is not active")


async def test_the_log_does_not_tell_what_another_organization_s_number_is(desk: Desk) -> None:
    other = await desk.api.of_another_organization()
    theirs = await other.made("/phone-numbers", {"number": "+49999", "provider": "sip"})
    for body in ({"phoneNumberId": theirs["id"]}, {"phoneNumberId": theirs["id"], "agentId": "x"}):
        assert (await desk.calls(body))[0] in (400, 404)
    assert [(each.attempt.phone_number_id, each.attempt.number) for each in await log_of(desk)] == [
        (theirs["id"], None)
    ] * 2


@pytest.mark.parametrize("body", [b"{", b"[]", b'"+49900"', b"{}", b'{"to": null}', b'{"to": ""}'])
async def test_a_body_that_names_nobody_to_call_is_not_in_the_log(desk: Desk, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    assert (await desk.api.raw("POST", "/calls", data=body, headers=headers)).status == 400
    assert await log_of(desk) == []


async def test_a_request_that_is_refused_again_for_its_key_is_in_the_log_once(desk: Desk) -> None:
    for _ in range(2):
        assert (await desk.calls({"to": "110"}, headers={"Idempotency-Key": "malformed"}))[0] == 400
    assert await verdicts(desk) == ["refused_request"]


async def test_what_the_key_s_rate_turns_away_is_not_in_the_log(desk: Desk) -> None:
    change = sa.update(tables.api_keys).values(requests_per_minute=2)
    await desk.harness.database.write(lambda conn: conn.execute(change))
    assert [(await desk.calls())[0] for _ in range(4)] == [201, 201, 429, 429]
    assert await verdicts(desk) == ["queued", "queued"]


async def test_the_log_knows_number_and_key_when_both_are_gone(desk: Desk) -> None:
    await desk.calls()
    [key] = await desk.harness.database.read(lambda conn: api_keys.all_of(conn, desk.api.organization_id))
    assert (await desk.api("DELETE", f"/phone-numbers/{desk.number.id}"))[0] == 200
    await desk.harness.database.write(lambda conn: conn.execute(sa.delete(tables.api_keys)))
    told = await log_of(desk)
    assert {(each.attempt.number, each.attempt.api_key_prefix) for each in told} == {(desk.number.number, key.prefix)}


async def test_a_call_that_finds_no_place_is_in_the_log(desk: Desk) -> None:
    await desk.organization_has(max_calls=1)
    assert [(await desk.calls())[0] for _ in range(2)] == [201, 429]
    [_, refused] = await log_of(desk)
    assert (refused.attempt.verdict, refused.attempt.call_id) == ("refused_ceiling", None)
    assert refused.attempt.detail == "Too many concurrent calls. Please try again later."


async def test_a_refusal_stands_when_its_note_cannot_be_stored(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.organization_has(outbound_prefixes=["+49"])

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no disk")

    monkeypatch.setattr(outbound_audit, "record", broken)
    with capture_logs() as lines:
        assert (await desk.calls()) == (400, FORBIDDEN)
    assert [each["event"] for each in lines if each["log_level"] == "error"] == ["api.refusal_not_noted"]


async def test_a_revoked_key_calls_nobody_at_once(desk: Desk) -> None:
    await desk.calls()
    await desk.callee()
    await desk.harness.database.write(
        lambda conn: [api_keys.revoke(conn, each.id) for each in api_keys.all_of(conn, desk.api.organization_id)]
    )
    assert (await desk.calls())[0] == 401
    assert await verdicts(desk) == ["queued"]
