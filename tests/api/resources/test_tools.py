"""`/v1/tools`, and the `toolIds` of agents."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from aiohttp import web
from structlog.testing import capture_logs

from calls.http_egress.address_rules import HttpEgressRules
from storage import tables
from storage.agents import tools
from tests import database_template
from tests.api.conftest import Api, StartApi
from tests.calls.http_server import LOOPBACK, client_with
from tests.calls.tools.tool_server import tool_server

REQUEST = {"url": "https://tools.example/weather", "method": "GET"}
BASE: dict[str, Any] = {"name": "Weather", "type": "http", "config": REQUEST}
CITY = {"name": "city", "type": "string", "description": "Where", "required": True}


async def _refused(api: Api, config: dict[str, Any], field: str) -> None:
    """Asserts that POST and PATCH reject this one field and change nothing."""
    tool = await api.create("/tools", {**BASE, "name": f"Tool {uuid4()}"})
    for method, path in (("POST", "/tools"), ("PATCH", f"/tools/{tool['id']}")):
        status, answer = await api(method, path, {**BASE, "config": {**REQUEST, **config}})
        assert (status, [each["field"] for each in answer.get("details", ())]) == (400, [field]), (config, answer)
    assert await api("GET", f"/tools/{tool['id']}") == (200, {"data": tool})


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"more": 1}, "config.more"),
        ({"headers": [{"key": "A", "value": "b", "more": 1}]}, "config.headers.0.more"),
        ({"headers": [{"key": "A", "value": "b"}, {"key": "A"}]}, "config.headers.1.value"),
        ({"headers": [{"value": "b"}]}, "config.headers.0.key"),
        ({"body": [{**CITY, "more": 1}]}, "config.body.0.more"),
        ({"body": [{"type": "string"}]}, "config.body.0.name"),
        ({"body": [{"name": "city"}]}, "config.body.0.type"),
        ({"body": [{**CITY, "type": "date"}]}, "config.body.0.type"),
        ({"body": [{**CITY, "required": "yes"}]}, "config.body.0.required"),
        ({"body": [{**CITY, "description": None}]}, "config.body.0.description"),
        ({"body": [{**CITY, "name": ""}]}, "config.body.0.name"),
        ({"body": [CITY, {**CITY, "name": "City"}, {**CITY, "type": "number"}]}, "config.body.2.name"),
    ],
)
async def test_a_problem_of_a_tool_is_reported_with_its_path(
    module_api: Api, config: dict[str, Any], field: str
) -> None:
    await _refused(module_api, config, field)


async def test_a_parameter_is_optional_and_without_description_by_default(api: Api) -> None:
    body = [{"name": "city", "type": "string"}]
    whole = [{"name": "city", "type": "string", "description": "", "required": False}]
    tool = await api.create("/tools", {**BASE, "config": {**REQUEST, "body": body}})
    assert tool["config"]["body"] == whole
    _, answer = await api("PATCH", f"/tools/{tool['id']}", {"config": {"body": [*body, CITY | {"name": "b"}]}})
    assert answer["data"]["config"]["body"] == [*whole, CITY | {"name": "b"}]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["{{order id}}", "{{}}", "{{a-b}}", "{{#if x}}", "{{é}}", "{{open", "{{a}}{{b}"])
async def test_a_malformed_placeholder_of_a_tool_is_rejected(module_api: Api, name: str) -> None:
    await _refused(module_api, {"url": f"https://tools.example/{name}"}, "config.url")
    await _refused(module_api, {"headers": [{"key": "X-Order", "value": f"no {name}"}]}, "config.headers.0.value")


@pytest.mark.parametrize("value", ["Bearer {{token}}", '{"id":{{ id }}}', "{ }} {x}", "Zürich", " a\u00a0b "])
async def test_a_header_value_may_have_placeholders_and_any_visible_text(api: Api, value: str) -> None:
    headers = [{"key": "!#$%&'*+-.^_`|~09azAZ", "value": value}]
    tool = await api.create("/tools", {**BASE, "config": {**REQUEST, "headers": headers}})
    assert tool["config"]["headers"] == headers


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("value", ["a\r\nHost: b", "a\n", "\x00", "\t", "\x7f", "\x85", 1, None])
async def test_a_header_value_with_control_characters_is_rejected(module_api: Api, value: Any) -> None:
    await _refused(module_api, {"headers": [{"key": "X-Tag", "value": value}]}, "config.headers.0.value")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "key", ["", "a b", "a:", "a\n", "é", "{{name}}", "Host", "content-length", "Transfer-Encoding", "CONNECTION", 1]
)
async def test_a_malformed_header_name_or_one_that_the_server_sets_is_rejected(module_api: Api, key: Any) -> None:
    await _refused(module_api, {"headers": [{"key": key, "value": "x"}]}, "config.headers.0.key")


async def test_header_values_are_returned_and_stored_encrypted_and_not_logged(api: Api) -> None:
    secret = f"hush-{uuid4()}"
    headers = [{"key": "Authorization", "value": f"Bearer {secret}"}]
    with capture_logs() as lines:
        tool = await api.create("/tools", {**BASE, "config": {**REQUEST, "headers": headers}})
        assert tool["config"]["headers"] == headers
        await api("PATCH", f"/tools/{tool['id']}", {"config": {"headers": headers, "timeout": 200}})
        repeated = {**BASE, "name": "Forecast", "config": {**REQUEST, "headers": headers}}
        for _ in range(2):
            _, answer = await api("POST", "/tools", repeated, headers={"Idempotency-Key": "k"})
            assert answer["data"]["config"]["headers"] == headers
        await api("POST", "/tools", {**BASE, "config": {**REQUEST, "headers": [{"key": "Host", "value": secret}]}})
        _, answer = await api("GET", "/tools")
        assert answer["data"][0]["config"]["headers"] == headers
    assert lines
    assert secret not in str(lines)
    stored = await api.services.database.read(lambda conn: tools.get(conn, api.organization_id, tool["id"]))
    assert stored is not None
    kept = [
        (header["key"], api.services.secrets.decrypt(header["value_encrypted"])) for header in stored.config["headers"]
    ]
    assert kept == [("Authorization", f"Bearer {secret}")]
    await api.services.database.close()
    assert await asyncio.to_thread(database_template.contains, api.services.database, "Authorization")
    assert not await asyncio.to_thread(database_template.contains, api.services.database, secret)


async def test_a_deleted_tool_is_removed_from_its_agents(api: Api) -> None:
    deleted_tool, kept = await api.create("/tools", BASE), await api.create("/tools", {**BASE, "name": "Tides"})
    for tool_ids in ([deleted_tool["id"], kept["id"]], [kept["id"]], None):
        await api.create("/agents", {"name": "Anna", "toolIds": tool_ids})
    before = (await api("GET", "/agents"))[1]["data"]
    deleted = {"data": {"id": deleted_tool["id"], "deleted": True}}
    assert await api("DELETE", f"/tools/{deleted_tool['id']}") == (200, deleted)
    assert await api("GET", f"/tools/{deleted_tool['id']}") == (404, {"error": "Tool not found"})
    for agent in before:
        after = (await api("GET", f"/agents/{agent['id']}"))[1]["data"]
        if agent["toolIds"] and deleted_tool["id"] in agent["toolIds"]:
            assert after["updatedAt"] > agent["updatedAt"]
            agent = {**agent, "toolIds": [kept["id"]], "updatedAt": after["updatedAt"], "version": 2}
        assert after == agent
    listed = (await api("GET", "/agents"))[1]["data"]
    assert not any(deleted_tool["id"] in (each["toolIds"] or []) for each in listed)


async def test_names_of_tools_differ_within_an_organization(api: Api, start_api: StartApi) -> None:
    weather, tides = await api.create("/tools", BASE), await api.create("/tools", {**BASE, "name": "Tides"})
    problem = {"field": "name", "message": "This organization already has a tool with this name"}
    taken = (400, {"error": "Validation failed", "details": [problem]})
    assert await api("POST", "/tools", BASE) == taken
    assert await api("PATCH", f"/tools/{tides['id']}", {"name": "Weather"}) == taken
    assert (await api("GET", f"/tools/{tides['id']}"))[1]["data"] == tides
    for name in ("Weather", "weather"):
        assert (await api("PATCH", f"/tools/{weather['id']}", {"name": name}))[0] == 200
    await api.create("/tools", BASE)
    await api("DELETE", f"/tools/{tides['id']}")
    await api.create("/tools", {**BASE, "name": "Tides"})
    other = await start_api(fresh=False)
    await other.create("/tools", BASE)


async def test_of_simultaneous_tools_with_one_name_one_is_created(api: Api) -> None:
    answers = await asyncio.gather(*(api("POST", "/tools", BASE) for _ in range(20)))
    assert sorted(status for status, _ in answers) == [201] + [400] * 19


async def test_tools_that_share_a_name_from_before_can_be_changed(api: Api) -> None:
    config: tools.ToolConfig = {"url": "https://a.example", "method": "GET", "timeout": 5000, "headers": [], "body": []}
    fields = tools.ToolFields(name="Weather", config=config)
    first, second = [
        await api.services.database.write(lambda conn: tools.create(conn, api.organization_id, fields)) for _ in "ab"
    ]
    for change in ({"name": "Weather", "description": "x"}, {"description": "y"}):
        assert (await api("PATCH", f"/tools/{first.id}", change))[0] == 200
    assert (await api("PATCH", f"/tools/{second.id}", {"name": "Forecast"}))[0] == 200
    assert (await api("PATCH", f"/tools/{second.id}", {"name": "Weather"}))[0] == 400


CALLERS_URL = "https://{{sip_x_region}}.tools.example/weather"


@pytest.mark.parametrize(
    "url",
    [
        CALLERS_URL,
        "https://tools.example{{sip_x_end}}/",
        "https://tools.example:{{customer_number}}/",
        "https://{{tenant}}.{{ caller_name }}.example/",
        "https://user@{{diverted_from}}/",
    ],
)
async def test_a_url_whose_host_callers_set_is_rejected_unless_the_tool_allows_it(api: Api, url: str) -> None:
    await _refused(api, {"url": url}, "config.url")
    await _refused(api, {"url": url, "allowVariableHost": False}, "config.url")
    config = {**REQUEST, "url": url, "allowVariableHost": True}
    tool = await api.create("/tools", {**BASE, "config": config})
    assert (tool["config"]["url"], tool["config"]["allowVariableHost"]) == (url, True)
    status, answer = await api("PATCH", f"/tools/{tool['id']}", {"config": {"allowVariableHost": False}})
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["config.url"])
    status, answer = await api("PATCH", f"/tools/{tool['id']}", {"config": {"url": CALLERS_URL}})
    assert (status, answer["data"]["config"]["url"]) == (200, CALLERS_URL)


async def test_variables_that_callers_do_not_set_are_allowed_in_the_host(api: Api) -> None:
    tool = await api.create("/tools", {**BASE, "config": {**REQUEST, "url": "https://{{tenant}}.example/{{sip_x_id}}"}})
    assert tool["config"]["allowVariableHost"] is False


async def test_a_stored_tool_with_a_variable_host_can_be_read_and_changed(api: Api) -> None:
    tool = await api.create("/tools", {**BASE, "config": {**REQUEST, "url": CALLERS_URL, "allowVariableHost": True}})

    def as_before(conn: sa.Connection) -> None:
        (found,) = tools.page(conn, api.organization_id, limit=1, offset=0).items
        config = {name: value for name, value in found.config.items() if name != "allow_variable_host"}
        conn.execute(sa.update(tables.tools).values(config=config))

    await api.services.database.write(as_before)
    status, answer = await api("PATCH", f"/tools/{tool['id']}", {"name": "New", "config": {"timeout": 100}})
    assert (status, answer["data"]["config"]["allowVariableHost"]) == (200, False)
    status, _ = await api("PATCH", f"/tools/{tool['id']}", {"config": {"url": CALLERS_URL}})
    assert status == 400


async def _tool_at(api: Api, origin: str, **config: Any) -> str:
    parameters = [CITY, {"name": "days ahead", "type": "integer"}]
    headers = [{"key": "Authorization", "value": "Bearer {{weather_key}}"}]
    request = {"url": f"{origin}/weather", "method": "POST", "headers": headers, "body": parameters, **config}
    made: str = (await api.create("/tools", {**BASE, "config": request}))["id"]
    return made


async def test_a_trial_sends_the_tools_request_and_shows_what_the_model_gets(start_api: StartApi) -> None:
    async with (
        tool_server(web.json_response({"sky": "grey", "key": "k-secret-1"})) as server,
        client_with(LOOPBACK) as client,
    ):
        api: Api = await start_api({"egress": {"allow": ["127.0.0.0/8"]}}, http_client=client)
        tool = await _tool_at(api, server.origin)
        body = {"arguments": {"city": "Kiel", "days ahead": 2}, "contextVariables": {"weather_key": "k-secret-1"}}
        status, answer = await api("POST", f"/tools/{tool}/try", body)
    trial = answer["data"]
    assert (status, trial["ok"], trial["statusCode"]) == (200, True, 200)
    assert "grey" in trial["content"] and "k-secret-1" not in trial["content"]
    assert 0 <= trial["durationMs"] < 5000
    ((method, path, headers, sent),) = server.asked
    assert (method, path, headers["Authorization"]) == ("POST", "/weather", "Bearer k-secret-1")
    assert json.loads(sent) == {"city": "Kiel", "days ahead": 2}


async def test_a_trial_that_fails_is_a_result_too(start_api: StartApi) -> None:
    async with tool_server(web.Response(status=503, text="asleep")) as server, client_with(LOOPBACK) as client:
        api: Api = await start_api({"egress": {"allow": ["127.0.0.0/8"]}}, http_client=client)
        tool = await _tool_at(api, server.origin)
        _, answer = await api("POST", f"/tools/{tool}/try", {"arguments": {"city": "Kiel"}})
        assert (answer["data"]["ok"], answer["data"]["statusCode"]) == (False, 503)
        assert "asleep" in answer["data"]["content"]
        await api("PATCH", f"/tools/{tool}", {"config": {"url": "http://127.0.0.1:9/"}})
        _, answer = await api("POST", f"/tools/{tool}/try", {"arguments": {"city": "Kiel"}})
        assert (answer["data"]["ok"], answer["data"]["statusCode"]) == (False, None)


async def test_a_trial_follows_the_rules_for_addresses(start_api: StartApi) -> None:
    async with tool_server() as server, client_with(HttpEgressRules()) as client:
        api: Api = await start_api({"egress": {"allow": ["127.0.0.0/8"]}}, http_client=client)
        tool = await _tool_at(api, server.origin)
        _, answer = await api("POST", f"/tools/{tool}/try", {"arguments": {"city": "Kiel"}})
    assert (answer["data"]["ok"], server.asked) == (False, [])
    assert answer["data"]["content"] == "The tool's address is not allowed on this server."


@pytest.mark.parametrize(
    "arguments", [{}, {"city": "Kiel", "more": 1}, {"city": "Kiel", "days ahead": "soon"}, {"city": {}}]
)
async def test_with_arguments_that_do_not_fit_nothing_is_sent(start_api: StartApi, arguments: dict[str, Any]) -> None:
    async with tool_server() as server, client_with(LOOPBACK) as client:
        api: Api = await start_api({"egress": {"allow": ["127.0.0.0/8"]}}, http_client=client)
        tool = await _tool_at(api, server.origin)
        _, answer = await api("POST", f"/tools/{tool}/try", {"arguments": arguments})
    assert (answer["data"]["ok"], answer["data"]["statusCode"], server.asked) == (False, None, [])
    assert answer["data"]["content"].startswith("`Weather` was not called: ")
