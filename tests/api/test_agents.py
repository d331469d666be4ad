"""`/v1/agents`: every field of the contract's table, with its default and its bounds."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet

from api.agent_models import AgentCreate
from config.secrets import Secrets
from storage import agents
from storage.agents import AgentFields
from tests.api.cases import FieldCase, choice, flag, integer, number, text
from tests.api.conftest import Api, LanguageModel, StartApi, Voice

NO_ID = str(uuid4())
NOT_UUIDS: tuple[Any, ...] = ("", "x", NO_ID[:-1], f"{NO_ID}0", 1, True, [NO_ID], {})
TARGET = {"name": "Sales", "description": "Orders", "number": "+41441234567", "mode": "cold"}
EXTRACTION = {"name": "ok", "description": "Was it fine?", "type": "boolean"}
FIELDS = [
    text("name", 1, 255, None, good=("é" * 255, "🙂" * 255, " ")),
    text("systemPrompt", 0, 32000, None, good=("", "Hi {{first_name}}, {{ n }}", "a } } {{ b")),
    FieldCase("slmModelId", None, (str(LanguageModel("responder").id),), (*NOT_UUIDS, NO_ID), nullable=True),
    FieldCase("voiceId", None, (str(Voice("flite/rms").id),), (*NOT_UUIDS, NO_ID), nullable=True),
    number("voiceSpeed", 0.6, 1.5, 1),
    number("voiceStability", 0, 1, 0.5),
    integer("turnEndpointDelay", 50, 2000, 100, nullable=True),
    integer("minTurnDuration", 0, 2000, 50, nullable=True),
    integer("minInterruptionDuration", 0, 2000, 100, nullable=True),
    number("frameActivationThreshold", 0, 1, 0.35, nullable=True),
    integer("postSpeechCooldown", 0, 5000, 400, nullable=True),
    number("ultravadEotThreshold", 0, 1, 0.1, nullable=True),
    integer("speculativeSilenceMs", 0, 5000, 150, nullable=True),
    integer("fallbackSilenceMs", 0, 10000, 3000, nullable=True),
    flag("allowEndCall", default=True),
    flag("isActive", default=True),
    flag("postCallSummaryEnabled", default=False),
    FieldCase(
        "postCallExtractionSchema",
        [],
        ([], [EXTRACTION], [{**EXTRACTION, "name": kind, "type": kind} for kind in ("string", "boolean", "number")]),
        ({}, "x", [1], [{}], [{**EXTRACTION, "type": "date"}], [{**EXTRACTION, "more": 1}], [EXTRACTION, EXTRACTION]),
    ),
    FieldCase(
        "postCallWebhookUrl",
        None,
        ("https://example.com/hook?a=b", "https://user@[2001:db8::1]:8443/"),
        ("", "x", "https://", "http://example.com", "ftp://example.com", "https://exa mple.com", "https://x:0/", 1, []),
        nullable=True,
    ),
    choice("firstSpeaker", ("user", "agent"), "user"),
    text("agentGreeting", 0, 1000, None, nullable=True, good=("", "Hi {{name}}")),
    flag("agentGreetingEnabled", default=False),
    flag("firstMessageUninterruptible", default=False),
    integer("firstMessageDelay", 0, 10000, 0),
    integer("maxCallDurationSeconds", 30, 3600, 600),
    FieldCase(
        "languageHint", None, ("en", "pt-BR", "x-old"), ("", "x" * 11, "e", "en_US", "-", 1, True), nullable=True
    ),
    text("knowledgeSearchInstructions", 0, 2000, None, nullable=True),
    FieldCase("backgroundSoundId", None, (), (*NOT_UUIDS, NO_ID), nullable=True),
    number("backgroundSoundVolume", 0, 1, 0.15),
    text("holdMessage", 0, 500, None, nullable=True),
    FieldCase(
        "holdMusicUrl",
        None,
        ("https://x/" + "a" * 490, "http://x/a.wav"),
        ("https://x/" + "a" * 491, "file:///etc/passwd", "x", 1),
        nullable=True,
    ),
    FieldCase("toolIds", None, ([],), ([NO_ID], ["x"], NO_ID, {}), nullable=True),
    FieldCase(
        "transferTargets",
        [],
        ([], [TARGET], [{**TARGET, "number": "12", "mode": "warm_briefing"}]),
        ([{}], [{**TARGET, "mode": "hot"}], [{**TARGET, "number": "1"}], [{**TARGET, "number": "+0123"}], {}),
    ),
]
RESPONSE_ONLY = {"id", "createdAt", "updatedAt", "postCallWebhookSecretSet"}


@pytest.mark.parametrize("case", FIELDS, ids=str)
async def test_a_field_takes_what_the_contract_says(api: Api, case: FieldCase) -> None:
    agent = await api.made("/agents", {"name": "Anna"})
    if case.name != "name":
        assert agent[case.name] == case.default
    for value in (*case.good, *((None,) if case.nullable else ())):
        body = {"name": "Anna", case.name: value}
        assert (await api.made("/agents", body))[case.name] == value
        status, answer = await api("PATCH", f"/agents/{agent['id']}", {case.name: value})
        assert (status, answer["data"][case.name]) == (200, value)


@pytest.mark.parametrize("case", FIELDS, ids=str)
async def test_a_field_refuses_everything_else(api: Api, case: FieldCase) -> None:
    agent = await api.made("/agents", {"name": "Anna"})
    for value in (*case.bad, *(() if case.nullable else (None,))):
        for method, path in (("POST", "/agents"), ("PATCH", f"/agents/{agent['id']}")):
            status, answer = await api(method, path, {"name": "Anna", case.name: value})
            assert (status, answer["error"]) == (400, "Validation failed"), value
            assert {each["field"].split(".")[0] for each in answer["details"]} == {case.name}, value
    assert await api("GET", f"/agents/{agent['id']}") == (200, {"data": agent})


async def test_the_response_has_exactly_the_fields_of_the_contract(api: Api) -> None:
    agent = await api.made("/agents", {"name": "Anna"})
    assert set(agent) == {case.name for case in FIELDS} | RESPONSE_ONLY
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", agent["id"])
    for name in ("createdAt", "updatedAt"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", agent[name])


def test_stored_agents_have_the_defaults_of_the_api() -> None:
    body = AgentCreate.model_validate({"name": "Anna"})
    assert AgentFields(**body.to_store(Secrets([Fernet.generate_key()]), only_given=False)) == AgentFields(name="Anna")


async def test_every_problem_is_told_at_once_by_its_path(api: Api) -> None:
    schema = [EXTRACTION, {"name": "x", "description": "", "type": "date"}]
    body = {"postCallExtractionSchema": schema, "voiceSpeed": "1", "unheardOf": 1, "id": NO_ID}
    status, answer = await api("POST", "/agents", body)
    assert status == 400
    fields = {each["field"] for each in answer["details"]}
    assert fields == {"name", "postCallExtractionSchema.1.type", "voiceSpeed", "unheardOf", "id"}
    assert all(each["message"] for each in answer["details"])


@pytest.mark.parametrize("name", ["{{first name}}", "{{#if x}}", "{{}}", "{{a-b}}", "{{a\n}} {{b c}}", "{{é}}"])
async def test_a_placeholder_with_a_bad_name_is_refused(api: Api, name: str) -> None:
    for field in ("systemPrompt", "agentGreeting"):
        status, answer = await api("POST", "/agents", {"name": "Anna", field: f"Hello {name}!"})
        assert (status, [each["field"] for each in answer["details"]]) == (400, [field])
        assert "{{first_name}}" in answer["details"][0]["message"]


async def test_a_setting_allows_http_webhooks(start_api: StartApi) -> None:
    api = await start_api({"webhooks": {"allow_http": True}})
    for url, expected in (("http://127.0.0.1:9/hook", 201), ("ftp://x/", 400)):
        status, _ = await api("POST", "/agents", {"name": "Anna", "postCallWebhookUrl": url})
        assert status == expected


async def test_absent_keeps_and_null_clears(api: Api) -> None:
    full = {"name": "Anna", "systemPrompt": "Help", "turnEndpointDelay": 70, "languageHint": "de"}
    agent = await api.made("/agents", full)
    _, answer = await api("PATCH", f"/agents/{agent['id']}", {"turnEndpointDelay": None, "languageHint": None})
    changed = answer["data"]
    assert changed["updatedAt"] >= agent["updatedAt"]
    expected = {**agent, "turnEndpointDelay": None, "languageHint": None, "updatedAt": changed["updatedAt"]}
    assert changed == expected
    _, answer = await api("PATCH", f"/agents/{agent['id']}", {})
    assert answer["data"] == {**expected, "updatedAt": answer["data"]["updatedAt"]}


async def test_the_webhook_secret_is_write_only_and_encrypted(api: Api) -> None:
    agent = await api.made("/agents", {"name": "Anna", "postCallWebhookSecret": "whsec_c2VjcmV0"})
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


async def test_a_list_is_newest_first_and_stable_under_paging(api: Api) -> None:
    made = [(await api.made("/agents", {"name": f"Agent {number}"}))["id"] for number in range(5)]
    status, answer = await api("GET", "/agents")
    ids = [each["id"] for each in answer["data"]]
    assert (status, answer["pagination"]) == (200, {"total": 5, "limit": 50, "offset": 0})
    created = [each["createdAt"] for each in answer["data"]]
    assert sorted(ids) == sorted(made)
    assert created == sorted(created, reverse=True)
    paged: list[str] = []
    for offset in range(0, 6, 2):
        _, answer = await api("GET", f"/agents?limit=2&offset={offset}")
        assert answer["pagination"] == {"total": 5, "limit": 2, "offset": offset}
        paged += [each["id"] for each in answer["data"]]
    assert paged == ids


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ("müller", {"Frau MÜLLER"}),
        ("STRASSE", {"Straße"}),
        ("%", {"100 %"}),
        ("_", set()),
        ("a", {"Frau MÜLLER", "Straße"}),
        ("", {"Frau MÜLLER", "Straße", "100 %"}),
        ("nobody", set()),
    ],
)
async def test_search_is_a_part_of_the_name_in_any_case(api: Api, search: str, names: set[str]) -> None:
    for name in ("Frau MÜLLER", "Straße", "100 %"):
        await api.made("/agents", {"name": name})
    _, answer = await api("GET", "/agents", params={"search": search})
    assert {each["name"] for each in answer["data"]} == names
    assert answer["pagination"]["total"] == len(names)


async def test_a_renamed_agent_is_found_by_its_new_name(api: Api) -> None:
    agent = await api.made("/agents", {"name": "Old"})
    await api("PATCH", f"/agents/{agent['id']}", {"name": "New"})
    totals = [(await api("GET", f"/agents?search={name}"))[1]["pagination"]["total"] for name in ("old", "new")]
    assert totals == [0, 1]


async def test_a_deleted_agent_leaves_its_numbers_without_one(api: Api) -> None:
    agent = await api.made("/agents", {"name": "Anna"})
    phone = await api.made("/phone-numbers", {"number": "100", "provider": "sip", "agentId": agent["id"]})
    deleted: dict[str, Any] = {"data": {"id": agent["id"], "deleted": True}}
    assert await api("DELETE", f"/agents/{agent['id']}") == (200, deleted)
    assert await api("GET", f"/agents/{agent['id']}") == (404, {"error": "Agent not found"})
    _, answer = await api("GET", f"/phone-numbers/{phone['id']}")
    assert answer["data"]["agentId"] is None
