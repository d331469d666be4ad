"""Trunk grants of the operator in `/v1/phone-numbers` and `/v1/calls`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from storage.accounts import audit_log
from storage.calls import outbound_audit
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy
from tests.api.conftest import Api, StartApi

BASE = {"number": "+4930123", "provider": "sip"}
PBX = {**BASE, "sipMode": "ip_allowlist", "sipIp": "192.0.2.10"}
LOGIN = {"sipUsername": "me", "sipPassword": "hush"}
CARRIER = {**BASE, **LOGIN, "sipMode": "registration", "sipProxy": "sip.carrier.example"}
NOT_GIVEN = "The operator has not given this trunk to your organization"


@pytest.fixture
async def approved(start_api: StartApi) -> Api:
    started: Api = await start_api({"trunks": {"policy": "approved"}})
    return started


async def grant_trunk(api: Api, trunk: str, pattern: str = "*") -> None:
    """As `trunkline trunk allow` does."""
    owner = api.organization_id
    await api.services.database.write(lambda conn: trunk_grants.allow(conn, owner, trunk, pattern, actor="ann"))


async def revoke_trunk(api: Api, trunk: str) -> None:
    """As `trunkline trunk deny` does."""
    owner = api.organization_id
    await api.services.database.write(lambda conn: trunk_grants.deny(conn, owner, trunk, None, actor="ann"))


async def rejected_fields(api: Api, method: str, path: str, body: Any) -> list[str]:
    """The fields that a 403 names."""
    status, answer = await api(method, path, body)
    assert (status, answer["error"]) == (403, "Not allowed"), answer
    return [each["field"] for each in answer["details"]]


@pytest.mark.parametrize(
    ("body", "field", "trunk"),
    [
        (PBX, "sipIp", "192.0.2.10"),
        ({**PBX, "sipIp": "127.0.0.1"}, "sipIp", "127.0.0.0/8"),
        ({**PBX, "sipIp": "192.168.1.9"}, "sipIp", "192.168.0.0/16"),
        ({**PBX, "sipIp": "PBX.example."}, "sipIp", "pbx.example"),
        ({**BASE, "sipIp": "192.0.2.10"}, "sipIp", "192.0.2.10"),
        (CARRIER, "sipProxy", "sip.carrier.example"),
        ({**CARRIER, "sipProxy": "sip:198.51.100.7:5080"}, "sipProxy", "198.51.100.7"),
        ({**BASE, "sipOutboundProxy": "sip:edge.example;lr"}, "sipOutboundProxy", "edge.example"),
        ({**BASE, "sipSources": ["198.51.100.0/25"]}, "sipSources.0", "198.51.100.0/24"),
    ],
)
async def test_a_trunk_without_a_grant_is_rejected_with_the_name_of_its_field(
    approved: Api, body: dict[str, Any], field: str, trunk: str
) -> None:
    assert await rejected_fields(approved, "POST", "/phone-numbers", body) == [field]
    status, answer = await approved("POST", "/phone-numbers", body)
    assert answer["details"] == [{"field": field, "message": NOT_GIVEN}]
    bare = await approved.create("/phone-numbers", {**BASE, **LOGIN})
    change = {name: value for name, value in body.items() if name not in BASE}
    assert await rejected_fields(approved, "PATCH", f"/phone-numbers/{bare['id']}", change) == [field]
    await approved("DELETE", f"/phone-numbers/{bare['id']}")
    await grant_trunk(approved, trunk)
    created = await approved.create("/phone-numbers", body)
    status, answer = await approved("PATCH", f"/phone-numbers/{created['id']}", change)
    assert status == 200, answer


async def test_every_trunk_without_a_grant_is_named(approved: Api) -> None:
    await grant_trunk(approved, "198.51.100.0/24")
    body = {**PBX, "sipSources": ["198.51.100.7", "198.51.0.0/16", "sbc.example"], "sipOutboundProxy": "edge.example"}
    fields = ["sipIp", "sipOutboundProxy", "sipSources.1", "sipSources.2"]
    assert sorted(await rejected_fields(approved, "POST", "/phone-numbers", body)) == fields


async def test_a_grant_of_one_organization_does_not_count_for_another(approved: Api) -> None:
    other = await approved.as_another_organization()
    await grant_trunk(approved, "192.0.2.10")
    await approved.create("/phone-numbers", PBX)
    assert await rejected_fields(other, "POST", "/phone-numbers", PBX) == ["sipIp"]
    assert await rejected_fields(other, "POST", "/phone-numbers", {**PBX, "number": "+49666"}) == ["sipIp"]


async def test_a_trunk_may_be_granted_for_some_numbers(approved: Api) -> None:
    await grant_trunk(approved, "192.0.2.10", "+4930*")
    created = await approved.create("/phone-numbers", PBX)
    message = "The operator has given this trunk to your organization for other numbers only"
    for method, path in (("POST", "/phone-numbers"), ("PATCH", f"/phone-numbers/{created['id']}")):
        status, answer = await approved(method, path, {**PBX, "number": "+4940123"})
        assert (status, answer["details"]) == (403, [{"field": "number", "message": message}])
    assert await rejected_fields(approved, "PATCH", f"/phone-numbers/{created['id']}", {"number": "+4940123"}) == [
        "number"
    ]
    status, _ = await approved("PATCH", f"/phone-numbers/{created['id']}", {"number": "+4930999"})
    assert status == 200


async def test_a_trunk_of_two_organizations_accepts_a_number_once_and_the_error_reveals_nothing(approved: Api) -> None:
    other = await approved.as_another_organization()
    for api in (approved, other):
        await grant_trunk(api, "192.0.2.10")
    await approved.create("/phone-numbers", PBX)
    status, answer = await other("POST", "/phone-numbers", PBX)
    assert (status, answer["error"]) == (400, "Validation failed")
    assert answer["details"] == [{"field": "number", "message": "This number is not available from this trunk"}]
    await other.create("/phone-numbers", {**PBX, "number": "+4930124"})


@pytest.mark.parametrize("first", ["open", "auto"])
async def test_existing_numbers_work_on_when_trunks_need_a_grant(start_api: StartApi, first: TrunkPolicy) -> None:
    before: Api = await start_api({"trunks": {"policy": first}})
    created = await before.create("/phone-numbers", {**PBX, "sipSources": ["198.51.100.0/24"]})
    later: Api = await start_api({"trunks": {"policy": "auto"}}, fresh=False)
    api = Api(later.client, later.services, before.organization_id, before.key, later.readiness, [])
    path = f"/phone-numbers/{created['id']}"
    changes: list[dict[str, object]] = [
        {"name": "OutboundClient"},
        {"sipIp": "192.0.2.10"},
        {"sipSources": []},
        {"number": "4930123"},
    ]
    for change in changes:
        status, answer = await api("PATCH", path, change)
        assert status == 200, answer
    assert await rejected_fields(api, "PATCH", path, {"sipIp": "192.0.2.11"}) == ["sipIp"]
    assert await rejected_fields(api, "PATCH", path, {"number": "+49666"}) == ["sipIp"]
    assert await rejected_fields(api, "PATCH", path, {"sipSources": ["198.51.100.0/24"]}) == ["sipSources.0"]
    assert await rejected_fields(later, "POST", "/phone-numbers", PBX) == ["sipIp"]


async def test_a_single_organization_needs_no_grant_and_that_of_the_demo_does_not_count(start_api: StartApi) -> None:
    api: Api = await start_api({"trunks": {"policy": "auto"}})
    await api.create("/phone-numbers", {**PBX, "sipIp": "127.0.0.1"})
    other = await api.as_another_organization()
    assert await rejected_fields(api, "POST", "/phone-numbers", {**PBX, "number": "100"}) == ["sipIp"]
    await api.services.database.write(lambda conn: trunk_grants.set_demo_organization(conn, other.organization_id))
    await api.create("/phone-numbers", {**PBX, "number": "100"})


async def test_policy_open_needs_no_grant_for_any_number_of_organizations(start_api: StartApi) -> None:
    api: Api = await start_api({"trunks": {"policy": "open"}})
    other = await api.as_another_organization()
    await other.create("/phone-numbers", PBX)


async def test_a_number_whose_trunk_was_revoked_stays_and_places_no_calls(approved: Api) -> None:
    await grant_trunk(approved, "192.0.2.10")
    created = await approved.create("/phone-numbers", PBX)
    agent = await approved.create("/agents", {"name": "Anna"})
    call = {"agentId": agent["id"], "phoneNumberId": created["id"], "to": "+4940100"}
    await approved.create("/calls", call)
    await revoke_trunk(approved, "192.0.2.0/24")
    status, answer = await approved("POST", "/calls", call)
    problem = {"field": "phoneNumberId", "message": "The operator has not given its trunk to this organization"}
    assert (status, answer["details"]) == (403, [problem])
    status, _ = await approved(
        "PATCH", f"/phone-numbers/{created['id']}", {"name": "OutboundClient", "agentId": agent["id"]}
    )
    assert status == 200
    assert await rejected_fields(approved, "PATCH", f"/phone-numbers/{created['id']}", {"sipIp": "192.0.2.10"}) == [
        "sipIp"
    ]

    def verdicts(conn: sa.Connection) -> list[str]:
        query = sa.select(outbound_audit._t.c.verdict).order_by(outbound_audit._t.c.created_at)
        return list(conn.execute(query).scalars())

    assert await approved.services.database.read(verdicts) == ["queued", "refused_trunk"]


async def test_a_granted_trunk_takes_precedence_over_an_earlier_claim(start_api: StartApi) -> None:
    first: Api = await start_api({"trunks": {"policy": "open"}})
    first_number = await first.create("/phone-numbers", PBX)
    later: Api = await start_api({"trunks": {"policy": "auto"}}, fresh=False)
    await grant_trunk(later, "192.0.2.10")
    owned = await later.create("/phone-numbers", PBX)
    database = later.services.database
    target = await database.read(
        lambda conn: phone_numbers.match_inbound(
            conn, ["192.0.2.10"], "+4930123", trunk_grants.current_access_rules(conn, "auto")
        )
    )
    assert target is not None and (target.number.id, target.other_matches[0].id) == (owned["id"], first_number["id"])


async def test_the_audit_log_has_numbers_that_lose_their_trunk(start_api: StartApi) -> None:
    before: Api = await start_api({"trunks": {"policy": "open"}})
    await before.create("/phone-numbers", PBX)
    await revoke_trunk(before, "192.0.2.0/24")
    entries = await before.services.database.read(
        lambda conn: audit_log.entries_since(conn, before.organization_id, datetime(1970, 1, 1, tzinfo=UTC))
    )
    detail = "192.0.2.0/24 for +4930123, which had it before"
    assert [(each.actor, each.action, each.detail) for each in entries[1:]] == [("ann", "trunk.deny", detail)]


async def test_the_openapi_document_has_403_for_phone_numbers(approved: Api) -> None:
    _, document = await approved("GET", "/openapi.json")
    for path, method in (("/phone-numbers", "post"), ("/phone-numbers/{id}", "patch"), ("/calls", "post")):
        assert "403" in document["paths"][path][method]["responses"]
    assert "403" not in document["paths"]["/phone-numbers"]["get"]["responses"]
