"""The audit log over the API: who it names, what it keeps to itself, its filters, and who may read it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from api.routing.route import OBJECT_TYPES
from storage.accounts import audit_log
from storage.accounts.audit_log import FAILED_SIGN_INS_PER_HOUR, Actor
from tests.api.auth.test_user_sessions import PASSWORD, Browser, new_user, signed_in
from tests.api.conftest import Api, StartApi

SECRET: Final = "whsec_c2VjcmV0IG9mIHRoZSBoYXJib3VyIG9mZmljZQ=="


async def entries(api: Api, query: str = "") -> list[dict[str, Any]]:
    """The entries of the organization, oldest first; those of one millisecond by their action."""
    status, answer = await api("GET", f"/audit?limit=100{query}")
    assert status == 200, answer
    listed: list[dict[str, Any]] = answer["data"]
    return sorted(listed, key=lambda each: (str(each["createdAt"]), str(each["action"])))


async def test_an_entry_names_the_user_the_object_and_the_fields_without_values(api: Api) -> None:
    user = await signed_in(api, "editor")
    _, answer = await user("POST", "/v1/agents", {"name": "Reception"})
    agent = answer["data"]["id"]
    change = {"systemPrompt": "Be brief.", "postCallWebhookSecret": SECRET, "name": "Reception", "stayOnCall": True}
    assert (await user("PATCH", f"/v1/agents/{agent}", change))[0] == 200
    assert (await user("POST", f"/v1/agents/{agent}/versions/1/restore", {}))[0] == 200
    assert (await user("DELETE", f"/v1/agents/{agent}"))[0] == 200
    found = [each for each in await entries(api) if each["object"]["type"] == "agent"]
    assert [(each["action"], each["fields"], each["detail"]) for each in found] == [
        ("agent.create", [], None),
        ("agent.update", ["systemPrompt", "postCallWebhookSecret", "stayOnCall"], None),
        ("agent.restore", [], "version 1"),
        ("agent.delete", [], None),
    ]
    who = await entries(api, "&action=user.sign-in")
    for each in found:
        assert each["object"] == {"type": "agent", "id": agent, "name": "Reception"}
        assert each["actor"] == who[0]["actor"] == {"type": "user", "id": who[0]["actor"]["id"], "name": "editor"}
        assert each["clientAddress"] == "127.0.0.1"
    assert "Be brief" not in str(found) and SECRET not in str(found)


async def test_a_request_that_changes_nothing_or_fails_makes_no_entry(api: Api) -> None:
    made = await api.create("/agents", {"name": "Reception"})
    key = {"Idempotency-Key": "once"}
    for _ in range(2):
        assert (await api("POST", "/tools", {"name": "Look up", "type": "unknown"}, headers=key))[0] == 400
        assert (await api("POST", "/agents", {"name": "Once"}, headers=key))[0] == 201
    for method, path, body in (("DELETE", f"/tools/{made['id']}", None), ("PATCH", f"/tools/{made['id']}", {})):
        assert (await api(method, path, body))[0] == 404
    assert (await api("GET", f"/agents/{made['id']}"))[0] == 200
    assert (await api("POST", "/knowledge/search", {"agentId": made["id"], "query": "x"}))[0] == 200
    assert [each["object"]["name"] for each in await entries(api)] == ["Reception", "Once"]


async def test_sessions_and_passwords_are_in_it(api: Api) -> None:
    user_id = await new_user(api, "anna", "owner")
    browser = Browser(api)
    assert (await browser("POST", "/api/session", {"username": "anna", "password": "no"}))[0] == 401
    assert (await browser("POST", "/api/session", {"username": "A secret word", "password": "no"}))[0] == 401
    for end in ("", "?all=true"):
        await browser.sign_in("anna")
        assert (await browser("DELETE", f"/api/session{end}"))[0] == 204
    found = await entries(api)
    anna = {"type": "user", "id": user_id, "name": "anna"}
    nobody = {"type": "unknown", "id": None, "name": ""}
    assert [(each["action"], each["actor"], each["object"]) for each in found] == [
        ("user.set-password", anna, anna),
        ("user.sign-in", anna, anna),
        ("user.sign-in-failed", nobody, anna),
        ("user.sign-in", anna, anna),
        ("user.sign-out", anna, anna),
        ("user.sign-in", anna, anna),
        ("user.sign-out-everywhere", anna, anna),
    ]
    assert {each["clientAddress"] for each in found} == {"127.0.0.1"}
    operator = await signed_in(api, "operator")
    _, answer = await operator("GET", "/v1/audit?scope=installation&action=user.sign-in-failed&limit=1")
    assert answer["data"][0] | {"id": "", "createdAt": ""} == {
        "id": "",
        "organizationId": None,
        "createdAt": "",
        "actor": nobody,
        "action": "user.sign-in-failed",
        "object": None,
        "fields": [],
        "clientAddress": "127.0.0.1",
        "detail": None,
    }
    assert "secret" not in str(answer) and PASSWORD not in str(answer) + str(found)


async def test_whoever_guesses_passwords_does_not_fill_it(api: Api) -> None:
    def guess(conn: Any) -> None:
        for _ in range(FAILED_SIGN_INS_PER_HOUR + 5):
            audit_log.record_failed_sign_in(conn, None, None, "192.0.2.1")

    await api.services.database.write(guess)
    operator = await signed_in(api, "operator")
    _, answer = await operator("GET", "/v1/audit?scope=installation&action=user.sign-in-failed&limit=1")
    assert answer["pagination"]["total"] == FAILED_SIGN_INS_PER_HOUR


async def test_the_filters(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Reception"})
    await api.create(
        "/tools", {"name": "Look up", "type": "http", "config": {"url": "https://example.com/", "method": "GET"}}
    )
    await (await signed_in(api, "editor"))("PATCH", f"/v1/agents/{agent['id']}", {"name": "Desk"})
    all_of_it = await entries(api)
    actions = [each["action"] for each in all_of_it]
    sign_in = ["user.set-password", "user.sign-in", "user.sign-in"]  # a link signs in, too
    assert actions == ["agent.create", "tool.create", *sign_in, "agent.update"]
    user = all_of_it[-1]["actor"]
    last = all_of_it[-1]["createdAt"]
    for query, expected in (
        ("&actor=editor", actions[2:]),
        (f"&actor={user['id'].upper()}", actions[2:]),
        ("&actor=edito", []),
        ("&action=tool.create", ["tool.create"]),
        ("&objectType=agent", ["agent.create", "agent.update"]),
        (f"&objectId={agent['id']}&actor=editor", ["agent.update"]),
        (f"&from={last}", ["agent.update"]),
        (f"&to={last}", actions),
        ("&to=2020-01-01T00:00:00Z", []),
    ):
        assert [each["action"] for each in await entries(api, query)] == expected, query


async def test_each_type_of_an_object_is_a_filter(api: Api) -> None:
    for each in OBJECT_TYPES.values():
        assert await entries(api, f"&objectType={each}") == [], each


@pytest.mark.parametrize("query", ["scope=all", "objectType=call_", "objectId=x", "from=x", "actor=", "since=x"])
async def test_a_wrong_filter_is_named(api: Api, query: str) -> None:
    status, answer = await api("GET", f"/audit?{query}")
    assert (status, [each["field"] for each in answer["details"]]) == (400, [query.partition("=")[0]])


async def test_only_operators_read_the_whole_installation(api: Api) -> None:
    other = await api.as_another_organization()
    await other.create("/agents", {"name": "Theirs"})
    await api.create("/agents", {"name": "Ours"})
    owner, operator = await signed_in(api, "owner"), await signed_in(api, "operator")
    for refused in (await owner("GET", "/v1/audit?scope=installation"), await api("GET", "/audit?scope=installation")):
        assert (refused[0], refused[1]["error"]) == (403, "This needs the role operator")
    for scope, expected in (("organization", {"Ours"}), ("installation", {"Ours", "Theirs"})):
        status, answer = await operator("GET", f"/v1/audit?scope={scope}&objectType=agent")
        assert (status, {each["object"]["name"] for each in answer["data"]}) == (200, expected)
    assert "Theirs" not in str(await owner("GET", "/v1/audit"))
    own = (await operator("GET", "/v1/audit?scope=installation"))[1]["data"]
    assert {"type": "operator", "id": own[0]["actor"]["id"], "name": "operator"} == own[0]["actor"]
    assert own[0]["organizationId"] is None


async def test_the_entries_of_a_change_are_undone_with_it(start_api: StartApi) -> None:
    api: Api = await start_api({"quotas": {"tools": 1}})
    tool = {"type": "http", "config": {"url": "https://example.com/", "method": "GET"}}
    await api.create("/tools", {"name": "One", **tool})
    assert (await api("POST", "/tools", {"name": "Two", **tool}))[0] == 403
    assert [each["object"]["name"] for each in await entries(api)] == ["One"]


async def test_an_api_key_is_named_and_its_text_is_not(api: Api) -> None:
    made = await api.create("/api-keys", {"name": "Web shop"})
    await replace(api, key=made["key"]).create("/agents", {"name": "Reception"})
    by_key = (await entries(api))[-1]
    assert by_key["actor"] == {"type": "api_key", "id": made["id"], "name": "Web shop"}
    assert made["key"] not in str(await entries(api))


async def test_the_time_of_retention_is_a_setting(start_api: StartApi) -> None:
    api: Api = await start_api({"audit": {"keep_days": 7}})
    assert api.services.settings.audit.keep_days == 7
    entry = await api.services.database.write(
        lambda conn: audit_log.record(conn, api.organization_id, actor=Actor("command", "root"), action="key.create")
    )
    assert [each["id"] for each in await entries(api)] == [entry.id]
