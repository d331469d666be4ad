"""`/v1/agents`: defaults, references, placeholders, secrets."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from api.schemas.agents import AgentCreate
from config.secrets import Secrets
from storage.accounts import organizations
from storage.agents import agents
from storage.tables.agent_fields import AgentFields
from tests.api.conftest import Api, StartApi

EXTRACTION = {"name": "ok", "description": "Was it fine?", "type": "boolean"}


def test_stored_agents_have_the_defaults_of_the_api() -> None:
    body = AgentCreate.model_validate({"name": "Anna"})
    assert AgentFields(**body.to_store(Secrets([Fernet.generate_key()]), only_given=False)) == AgentFields(name="Anna")


async def test_every_problem_of_an_agent_is_reported_at_once_with_its_path(api: Api) -> None:
    schema = [EXTRACTION, {"name": "x", "description": "", "type": "date"}]
    body = {"postCallExtractionSchema": schema, "voiceSpeed": "1", "unheardOf": 1, "id": "x"}
    status, answer = await api("POST", "/agents", body)
    assert status == 400
    fields = {each["field"] for each in answer["details"]}
    assert fields == {"name", "postCallExtractionSchema.1.type", "voiceSpeed", "unheardOf", "id"}
    assert all(each["message"] for each in answer["details"])


@pytest.mark.parametrize("name", ["{{first name}}", "{{#if x}}", "{{}}", "{{a-b}}", "{{a\n}} {{b c}}", "{{é}}"])
async def test_a_malformed_placeholder_of_an_agent_is_rejected(api: Api, name: str) -> None:
    for field in ("systemPrompt", "agentGreeting"):
        status, answer = await api("POST", "/agents", {"name": "Anna", field: f"Hello {name}!"})
        assert (status, [each["field"] for each in answer["details"]]) == (400, [field])
        assert "{{first_name}}" in answer["details"][0]["message"]


async def test_an_agent_says_what_its_calls_do_in_another_way(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Anna", "languageHint": "de"})
    assert agent["warnings"] == [{"field": "languageHint", "message": "No German"}]
    status, changed = await api("PATCH", f"/agents/{agent['id']}", {"languageHint": "en"})
    assert (status, changed["data"]["warnings"]) == (200, [])
    _, listed = await api("GET", "/agents")
    assert [each["warnings"] for each in listed["data"]] == [[]]


@pytest.mark.parametrize("tag", ["xx", "english", "en-us-foo"])
async def test_a_language_that_is_not_registered_is_rejected(api: Api, tag: str) -> None:
    status, answer = await api("POST", "/agents", {"name": "Anna", "languageHint": tag})
    assert (status, answer["details"][0]["field"]) == (400, "languageHint")
    assert answer["details"][0]["message"] == "Must be a known language, as en or pt-BR"


async def test_a_setting_allows_http_webhooks(start_api: StartApi) -> None:
    api = await start_api({"webhooks": {"allow_http": True}})
    for url, expected in (("http://192.168.1.2:9/hook", 201), ("ftp://x/", 400)):
        status, _ = await api("POST", "/agents", {"name": "Anna", "postCallWebhookUrl": url})
        assert status == expected


async def test_a_refused_http_webhook_is_answered_with_the_setting_that_allows_it(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Anna"})
    for method, path in (("POST", "/agents"), ("PATCH", f"/agents/{agent['id']}")):
        status, answer = await api(method, path, {"name": "Anna", "postCallWebhookUrl": "http://hook.example/"})
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["postCallWebhookUrl"])
        message = answer["details"][0]["message"]
        assert "[webhooks] allow_http" in message
        assert "TRUNKLINE_WEBHOOKS__ALLOW_HTTP" in message


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "user:secret@127.0.0.1:8443",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0",
        "localhost",
        "LocalHost.",
        "api.localhost",
        "169.254.169.254",
        "168.63.129.16",
        "metadata.google.internal",
        "224.0.0.1",
        "[::1]",
        "[fe80::1]",
        "[::ffff:7f00:1]",
    ],
)
async def test_addresses_that_would_be_refused_at_the_call_are_refused_when_they_are_saved(
    start_api: StartApi, host: str
) -> None:
    api = await start_api({"webhooks": {"allow_http": True}})
    agent = await api.create("/agents", {"name": "Anna"})
    tool_request = {"url": f"http://{host}/x", "method": "GET"}
    tool = await api.create(
        "/tools", {"name": "a", "type": "http", "config": {"url": "http://a.example", "method": "GET"}}
    )
    for method, path, body, field in (
        ("POST", "/agents", {"name": "b", "postCallWebhookUrl": f"http://{host}/x"}, "postCallWebhookUrl"),
        ("PATCH", f"/agents/{agent['id']}", {"postCallWebhookUrl": f"https://{host}?x"}, "postCallWebhookUrl"),
        ("POST", "/tools", {"name": "b", "type": "http", "config": tool_request}, "config.url"),
        ("PATCH", f"/tools/{tool['id']}", {"config": {"url": f"https://{host}"}}, "config.url"),
    ):
        status, answer = await api(method, path, body)
        assert (status, [each["field"] for each in answer.get("details", ())]) == (400, [field])
        assert "[egress] allow" in answer["details"][0]["message"]
        assert "secret" not in answer["details"][0]["message"]


async def test_settings_and_unknown_names_decide_which_addresses_are_saved(start_api: StartApi) -> None:
    api = await start_api({"egress": {"allow": ["127.0.0.0/8"], "deny": ["10.0.0.0/8"]}})
    for host, expected in (
        ("127.0.0.1", 201),
        ("localhost", 201),
        ("[::1]", 400),
        ("192.168.1.2", 201),
        ("10.1.2.3", 400),
        ("no-such-name.invalid", 201),
        ("localhost.example", 201),
    ):
        status, _ = await api("POST", "/agents", {"name": "Anna", "postCallWebhookUrl": f"https://{host}/"})
        assert (host, status) == (host, expected)


async def test_hosts_of_tools_with_variables_are_checked_as_far_as_they_are_known(api: Api) -> None:
    for index, (host, expected) in enumerate(
        (
            ("127.0.0.1:{{port}}", 400),
            ("{{user}}@127.0.0.1", 400),
            ("{{tenant}}.localhost", 400),
            ("{{host}}", 201),
            ("{{tenant}}.example", 201),
            ("a.example:{{port}}", 201),
        )
    ):
        config = {"url": f"https://{host}/127.0.0.1?localhost", "method": "GET"}
        status, _ = await api("POST", "/tools", {"name": f"tool {index}", "type": "http", "config": config})
        assert (host, status) == (host, expected)


async def test_the_webhook_secret_is_write_only_and_encrypted(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Anna", "postCallWebhookSecret": "whsec_c2VjcmV0"})
    assert agent["postCallWebhookSecretSet"] is True
    stored = await api.services.database.read(lambda conn: agents.get(conn, api.organization_id, agent["id"]))
    assert stored is not None
    token = stored.post_call_webhook_secret_encrypted
    assert token is not None
    assert "whsec" not in token
    assert token not in repr(stored)
    assert api.services.secrets.decrypt(token) == "whsec_c2VjcmV0"
    for value, is_set in (("other", True), (None, False)):
        _, answer = await api("PATCH", f"/agents/{agent['id']}", {"postCallWebhookSecret": value})
        assert answer["data"]["postCallWebhookSecretSet"] is is_set
    for bad in ("", 1, True):
        status, _ = await api("PATCH", f"/agents/{agent['id']}", {"postCallWebhookSecret": bad})
        assert status == 400


async def test_a_renamed_agent_is_found_by_its_new_name(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Old"})
    await api("PATCH", f"/agents/{agent['id']}", {"name": "New"})
    totals = [(await api("GET", f"/agents?search={name}"))[1]["pagination"]["total"] for name in ("old", "new")]
    assert totals == [0, 1]


async def test_deleting_an_agent_leaves_its_numbers_without_one(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Anna"})
    phone = await api.create("/phone-numbers", {"number": "100", "provider": "sip", "agentId": agent["id"]})
    deleted: dict[str, Any] = {"data": {"id": agent["id"], "deleted": True}}
    assert await api("DELETE", f"/agents/{agent['id']}") == (200, deleted)
    assert await api("GET", f"/agents/{agent['id']}") == (404, {"error": "Agent not found"})
    _, answer = await api("GET", f"/phone-numbers/{phone['id']}")
    assert answer["data"]["agentId"] is None


async def test_an_agent_that_leaves_messages_needs_one(api: Api) -> None:
    problem = {"field": "voicemailMessage", "message": "Required with voicemailDetection leave_message"}
    leaves = {"voicemailDetection": "leave_message"}
    for message in ({}, {"voicemailMessage": None}, {"voicemailMessage": "  "}):
        status, answer = await api("POST", "/agents", {"name": "Anna", **leaves, **message})
        assert (status, answer["details"]) == (400, [problem])
    agent = await api.create("/agents", {"name": "Anna"})
    assert (agent["voicemailDetection"], agent["voicemailMessage"]) == ("off", None)
    status, answer = await api("PATCH", f"/agents/{agent['id']}", leaves)
    assert (status, answer["details"]) == (400, [problem])
    assert (await api("GET", f"/agents/{agent['id']}"))[1]["data"]["voicemailDetection"] == "off"
    given = {**leaves, "voicemailMessage": "Call us, {{name}}."}
    status, answer = await api("PATCH", f"/agents/{agent['id']}", given)
    assert (status, answer["data"]["voicemailMessage"]) == (200, "Call us, {{name}}.")
    status, answer = await api("PATCH", f"/agents/{agent['id']}", {"voicemailMessage": None})
    assert (status, answer["details"]) == (400, [problem])
    status, answer = await api(
        "PATCH", f"/agents/{agent['id']}", {"voicemailDetection": "detect", "voicemailMessage": None}
    )
    assert (status, answer["data"]["voicemailMessage"]) == (200, None)


SALES = {"name": "Sales", "description": "Orders", "number": "+4930123456", "mode": "warm_announce"}


async def test_a_transfer_target_may_name_the_phone_number_whose_trunk_is_used(api: Api) -> None:
    number = await api.create("/phone-numbers", {"number": "200", "provider": "sip"})
    target = {**SALES, "mode": "attended", "phoneNumberId": number["id"]}
    agent = await api.create("/agents", {"name": "Anna", "transferTargets": [target, {**SALES, "name": "Other"}]})
    assert agent["transferTargets"] == [target, {**SALES, "name": "Other", "phoneNumberId": None}]
    assert (await api("GET", f"/agents/{agent['id']}"))[1]["data"] == agent
    assert (agent["recordAfterTransfer"], agent["stayOnCall"]) == (True, False)
    changes = {"transferTargets": [], "recordAfterTransfer": False, "stayOnCall": True}
    _, answer = await api("PATCH", f"/agents/{agent['id']}", changes)
    assert {name: answer["data"][name] for name in changes} == changes


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_the_phone_number_of_a_transfer_target_must_be_the_organizations_own(api: Api, method: str) -> None:
    other = await api.as_another_organization()
    foreign = await other.create("/phone-numbers", {"number": "200", "provider": "sip"})
    targets = [
        SALES,
        {**SALES, "name": "Foreign", "phoneNumberId": foreign["id"]},
        {**SALES, "name": "Unknown", "phoneNumberId": str(uuid4())},
    ]
    agent = await api.create("/agents", {"name": "Anna"})
    path = "/agents" if method == "POST" else f"/agents/{agent['id']}"
    status, answer = await api(method, path, {"name": "Anna", "transferTargets": targets})
    fields = [each["field"] for each in answer["details"]]
    assert (status, fields) == (400, [f"transferTargets.{index}.phoneNumberId" for index in (1, 2)])
    assert {each["message"] for each in answer["details"]} == {"Does not exist"}
    assert (await api("GET", f"/agents/{agent['id']}"))[1]["data"]["transferTargets"] == []


async def test_a_transfer_target_must_begin_with_permitted_prefixes(api: Api) -> None:
    def permit(conn: sa.Connection) -> None:
        organization = organizations.get(conn, api.organization_id)
        assert organization is not None
        organizations.change(conn, organization, {"outbound_prefixes": ["+49", "+41"]})

    await api.services.database.write(permit)
    number = await api.create(
        "/phone-numbers", {"number": "200", "provider": "sip", "outboundPrefixes": ["+4930", "+33", "+41"]}
    )
    own = {"phoneNumberId": number["id"]}
    numbers: list[tuple[str, dict[str, Any], bool]] = [
        ("+4989123456", {}, True),
        ("+33123456", {}, False),
        ("12", {}, False),
        ("+4930123456", own, True),
        ("+4989123456", own, False),
        ("+33123456", own, False),
    ]
    targets = [{**SALES, "name": f"T{index}", "number": to, **more} for index, (to, more, _) in enumerate(numbers)]
    status, answer = await api("POST", "/agents", {"name": "Anna", "transferTargets": targets})
    refused = [f"transferTargets.{index}.number" for index, (*_, permitted) in enumerate(numbers) if not permitted]
    assert (status, [each["field"] for each in answer["details"]]) == (400, refused)
    permitted = [target for target, (*_, is_permitted) in zip(targets, numbers, strict=True) if is_permitted]
    agent = await api.create("/agents", {"name": "Anna", "transferTargets": permitted})
    _, answer = await api("PATCH", f"/agents/{agent['id']}", {"transferTargets": targets})
    assert [each["field"] for each in answer["details"]] == refused


@pytest.mark.parametrize(
    ("events", "field"),
    [
        (["call.completed", "call.ended"], "postCallWebhookEvents.1"),
        (["call.turn", "call.turn"], "postCallWebhookEvents.1"),
        (["call.started", "call.turn", "call.started", "call.turn"], "postCallWebhookEvents.2"),
        (["completed"], "postCallWebhookEvents.0"),
        ("call.turn", "postCallWebhookEvents"),
        (None, "postCallWebhookEvents"),
    ],
)
async def test_unknown_and_repeated_webhook_events_are_rejected(api: Api, events: object, field: str) -> None:
    agent = await api.create("/agents", {"name": "Anna"})
    assert agent["postCallWebhookEvents"] == ["call.completed"]
    for method, path in (("POST", "/agents"), ("PATCH", f"/agents/{agent['id']}")):
        status, answer = await api(method, path, {"name": "Anna", "postCallWebhookEvents": events})
        assert (status, answer["details"][0]["field"]) == (400, field)
    kept = await api("PATCH", f"/agents/{agent['id']}", {"postCallWebhookEvents": []})
    assert kept[1]["data"]["postCallWebhookEvents"] == []
