"""`/v1/phone-numbers` and `/v1/calls` where the operator says whose trunks are whose."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from storage.accounts import operator_audit
from storage.calls import outbound_audit
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.trunk_rules import Policy
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


async def give(api: Api, trunk: str, pattern: str = "*") -> None:
    """As `trunkline trunk allow` does."""
    owner = api.organization_id
    await api.services.database.write(lambda conn: trunk_grants.allow(conn, owner, trunk, pattern, actor="ann"))


async def take(api: Api, trunk: str) -> None:
    """As `trunkline trunk deny` does."""
    owner = api.organization_id
    await api.services.database.write(lambda conn: trunk_grants.deny(conn, owner, trunk, None, actor="ann"))


async def refused(api: Api, method: str, path: str, body: Any) -> list[str]:
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
async def test_a_trunk_that_was_not_given_is_refused_by_its_field(
    approved: Api, body: dict[str, Any], field: str, trunk: str
) -> None:
    assert await refused(approved, "POST", "/phone-numbers", body) == [field]
    status, answer = await approved("POST", "/phone-numbers", body)
    assert answer["details"] == [{"field": field, "message": NOT_GIVEN}]
    bare = await approved.made("/phone-numbers", {**BASE, **LOGIN})
    change = {name: value for name, value in body.items() if name not in BASE}
    assert await refused(approved, "PATCH", f"/phone-numbers/{bare['id']}", change) == [field]
    await approved("DELETE", f"/phone-numbers/{bare['id']}")
    await give(approved, trunk)
    made = await approved.made("/phone-numbers", body)
    status, answer = await approved("PATCH", f"/phone-numbers/{made['id']}", change)
    assert status == 200, answer


async def test_every_trunk_that_was_not_given_is_named(approved: Api) -> None:
    await give(approved, "198.51.100.0/24")
    body = {**PBX, "sipSources": ["198.51.100.7", "198.51.0.0/16", "sbc.example"], "sipOutboundProxy": "edge.example"}
    fields = ["sipIp", "sipOutboundProxy", "sipSources.1", "sipSources.2"]
    assert sorted(await refused(approved, "POST", "/phone-numbers", body)) == fields


async def test_what_was_given_to_one_is_not_anothers(approved: Api) -> None:
    other = await approved.of_another_organization()
    await give(approved, "192.0.2.10")
    await approved.made("/phone-numbers", PBX)
    assert await refused(other, "POST", "/phone-numbers", PBX) == ["sipIp"]
    assert await refused(other, "POST", "/phone-numbers", {**PBX, "number": "+49666"}) == ["sipIp"]


async def test_a_trunk_may_be_given_for_some_numbers(approved: Api) -> None:
    await give(approved, "192.0.2.10", "+4930*")
    made = await approved.made("/phone-numbers", PBX)
    message = "The operator has given this trunk to your organization for other numbers only"
    for method, path in (("POST", "/phone-numbers"), ("PATCH", f"/phone-numbers/{made['id']}")):
        status, answer = await approved(method, path, {**PBX, "number": "+4940123"})
        assert (status, answer["details"]) == (403, [{"field": "number", "message": message}])
    assert await refused(approved, "PATCH", f"/phone-numbers/{made['id']}", {"number": "+4940123"}) == ["number"]
    status, _ = await approved("PATCH", f"/phone-numbers/{made['id']}", {"number": "+4930999"})
    assert status == 200


async def test_a_trunk_of_two_is_taken_once_for_a_number_and_the_answer_tells_nothing(approved: Api) -> None:
    other = await approved.of_another_organization()
    for api in (approved, other):
        await give(api, "192.0.2.10")
    await approved.made("/phone-numbers", PBX)
    status, answer = await other("POST", "/phone-numbers", PBX)
    assert (status, answer["error"]) == (400, "Validation failed")
    assert answer["details"] == [{"field": "number", "message": "This number is not available from this trunk"}]
    await other.made("/phone-numbers", {**PBX, "number": "+4930124"})


@pytest.mark.parametrize("first", ["open", "auto"])
async def test_numbers_that_were_there_go_on_as_they_are_once_trunks_must_be_given(
    start_api: StartApi, first: Policy
) -> None:
    before: Api = await start_api({"trunks": {"policy": first}})
    made = await before.made("/phone-numbers", {**PBX, "sipSources": ["198.51.100.0/24"]})
    later: Api = await start_api({"trunks": {"policy": "auto"}}, fresh=False)
    api = Api(later.client, later.services, before.organization_id, before.key, later.trouble, [])
    path = f"/phone-numbers/{made['id']}"
    for change in ({"name": "Desk"}, {"sipIp": "192.0.2.10"}, {"sipSources": []}, {"number": "4930123"}):
        status, answer = await api("PATCH", path, change)
        assert status == 200, answer
    assert await refused(api, "PATCH", path, {"sipIp": "192.0.2.11"}) == ["sipIp"]
    assert await refused(api, "PATCH", path, {"number": "+49666"}) == ["sipIp"]
    assert await refused(api, "PATCH", path, {"sipSources": ["198.51.100.0/24"]}) == ["sipSources.0"]
    assert await refused(later, "POST", "/phone-numbers", PBX) == ["sipIp"]


async def test_one_organization_needs_nobody_and_the_demo_s_does_not_count(start_api: StartApi) -> None:
    api: Api = await start_api({"trunks": {"policy": "auto"}})
    await api.made("/phone-numbers", {**PBX, "sipIp": "127.0.0.1"})
    other = await api.of_another_organization()
    assert await refused(api, "POST", "/phone-numbers", {**PBX, "number": "100"}) == ["sipIp"]
    await api.services.database.write(lambda conn: trunk_grants.set_demo_organization(conn, other.organization_id))
    await api.made("/phone-numbers", {**PBX, "number": "100"})


async def test_open_asks_nobody_however_many_there_are(start_api: StartApi) -> None:
    api: Api = await start_api({"trunks": {"policy": "open"}})
    other = await api.of_another_organization()
    await other.made("/phone-numbers", PBX)


async def test_a_number_whose_trunk_was_taken_stays_and_calls_nobody(approved: Api) -> None:
    await give(approved, "192.0.2.10")
    made = await approved.made("/phone-numbers", PBX)
    agent = await approved.made("/agents", {"name": "Anna"})
    call = {"agentId": agent["id"], "phoneNumberId": made["id"], "to": "+4940100"}
    await approved.made("/calls", call)
    await take(approved, "192.0.2.0/24")
    status, answer = await approved("POST", "/calls", call)
    problem = {"field": "phoneNumberId", "message": "The operator has not given its trunk to this organization"}
    assert (status, answer["details"]) == (403, [problem])
    status, _ = await approved("PATCH", f"/phone-numbers/{made['id']}", {"name": "Desk", "agentId": agent["id"]})
    assert status == 200
    assert await refused(approved, "PATCH", f"/phone-numbers/{made['id']}", {"sipIp": "192.0.2.10"}) == ["sipIp"]

    def verdicts(conn: sa.Connection) -> list[str]:
        query = sa.select(outbound_audit._t.c.verdict).order_by(outbound_audit._t.c.created_at)
        return list(conn.execute(query).scalars())

    assert await approved.services.database.read(verdicts) == ["queued", "refused_trunk"]


async def test_what_the_operator_gave_comes_before_what_was_squatted(start_api: StartApi) -> None:
    squatter: Api = await start_api({"trunks": {"policy": "open"}})
    squatted = await squatter.made("/phone-numbers", PBX)
    later: Api = await start_api({"trunks": {"policy": "auto"}}, fresh=False)
    await give(later, "192.0.2.10")
    owned = await later.made("/phone-numbers", PBX)
    database = later.services.database
    target = await database.read(
        lambda conn: phone_numbers.match_inbound(
            conn, ["192.0.2.10"], "+4930123", trunk_grants.current_rules(conn, "auto")
        )
    )
    assert target is not None and (target.number.id, target.other_matches[0].id) == (owned["id"], squatted["id"])


async def test_the_audit_log_tells_of_numbers_that_lose_what_they_had_before(start_api: StartApi) -> None:
    before: Api = await start_api({"trunks": {"policy": "open"}})
    await before.made("/phone-numbers", PBX)
    await take(before, "192.0.2.0/24")
    entries = await before.services.database.read(
        lambda conn: operator_audit.entries_since(conn, before.organization_id, datetime(1970, 1, 1, tzinfo=UTC))
    )
    detail = "192.0.2.0/24 for +4930123, which had it before"
    assert [(each.actor, each.action, each.detail) for each in entries] == [("ann", "trunk.deny", detail)]


async def test_the_description_tells_of_403(approved: Api) -> None:
    _, document = await approved("GET", "/openapi.json")
    for path, method in (("/phone-numbers", "post"), ("/phone-numbers/{id}", "patch"), ("/calls", "post")):
        assert "403" in document["paths"][path][method]["responses"]
    assert "403" not in document["paths"]["/phone-numbers"]["get"]["responses"]
