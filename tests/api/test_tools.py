"""`/v1/tools`, and the `toolIds` of agents."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from storage import tools
from tests.api.cases import FieldCase, choice, integer, text
from tests.api.conftest import Api

REQUEST = {"url": "https://tools.example/weather", "method": "GET"}
BASE: dict[str, Any] = {"name": "Weather", "type": "http", "config": REQUEST}
CITY = {"name": "city", "type": "string", "description": "Where", "required": True}
TYPES = ("string", "number", "integer", "boolean", "object", "array")
FULL = {
    "url": "http://[2001:db8::1]:8080/weather?unit=c",
    "method": "POST",
    "timeout": 700,
    "headers": [{"key": "Authorization", "value": "Bearer hush"}, {"key": "X-Tag", "value": ""}],
    "body": [CITY, {"name": "days", "type": "integer", "description": "", "required": False}],
}
FIELDS = [
    text("name", 1, 255, None, good=("é" * 255,)),
    FieldCase("description", None, ("", "é" * 5000), (1, True, [], {}), nullable=True),
    choice("type", ("http",), "http"),
]
PLACED = (
    "https://tools.example/orders/{{order_id}}?day={{ day }}",
    "https://{{tenant}}.example/",
    "https://tools.example:{{port}}/",
    "http://{{host}}",
)
NO_ADDRESSES: tuple[Any, ...] = (
    "",
    "x",
    "/weather",
    "tools.example/weather",
    "https://",
    "ftp://tools.example/",
    "file:///etc/passwd",
    "https://tools .example/",
    "https://tools.example:0/",
    "https://tools.example/\n",
    "{{address}}",
    "{{scheme}}://tools.example/",
    1,
    None,
    [],
)
REQUEST_FIELDS = [
    FieldCase("url", None, (*PLACED, "http://192.0.2.1/", "https://user@tools.example/a#b"), NO_ADDRESSES),
    FieldCase("method", None, ("GET", "POST", "PUT", "PATCH", "DELETE"), ("", "get", "GET ", "HEAD", 1, None, ["GET"])),
    integer("timeout", 100, 30000, 5000),
    FieldCase("headers", [], ([], FULL["headers"]), ({}, "x", [1], [None], None)),
    FieldCase(
        "body",
        [],
        ([], FULL["body"], [{**CITY, "name": kind, "type": kind} for kind in TYPES]),
        ({}, "x", [1], [None], None),
    ),
]


async def _refused(api: Api, config: dict[str, Any], field: str) -> None:
    """POST and PATCH name this one field and leave everything as it is."""
    tool = await api.made("/tools", BASE)
    for method, path in (("POST", "/tools"), ("PATCH", f"/tools/{tool['id']}")):
        status, answer = await api(method, path, {**BASE, "config": {**REQUEST, **config}})
        assert (status, [each["field"] for each in answer.get("details", ())]) == (400, [field]), (config, answer)
    assert await api("GET", f"/tools/{tool['id']}") == (200, {"data": tool})


async def test_a_new_tool_has_the_defaults_of_the_contract(api: Api) -> None:
    tool = await api.made("/tools", BASE)
    stamps = {name: tool[name] for name in ("id", "createdAt", "updatedAt")}
    config = {**REQUEST, "timeout": 5000, "headers": [], "body": []}
    assert tool == {"name": "Weather", "description": None, "type": "http", "config": config, **stamps}
    assert await api("GET", f"/tools/{tool['id']}") == (200, {"data": tool})


@pytest.mark.parametrize("case", FIELDS, ids=str)
async def test_a_field_takes_what_the_contract_says_and_nothing_else(api: Api, case: FieldCase) -> None:
    tool = await api.made("/tools", BASE)
    for value in (*case.good, *((None,) if case.nullable else ())):
        assert (await api.made("/tools", {**BASE, case.name: value}))[case.name] == value
        status, answer = await api("PATCH", f"/tools/{tool['id']}", {case.name: value})
        assert (status, answer["data"][case.name]) == (200, value)
    for value in (*case.bad, *(() if case.nullable else (None,))):
        for method, path in (("POST", "/tools"), ("PATCH", f"/tools/{tool['id']}")):
            status, answer = await api(method, path, {**BASE, case.name: value})
            assert (status, [each["field"] for each in answer["details"]]) == (400, [case.name]), value


@pytest.mark.parametrize("case", REQUEST_FIELDS, ids=str)
async def test_the_request_takes_what_the_contract_says(api: Api, case: FieldCase) -> None:
    tool = await api.made("/tools", BASE)
    for value in case.good:
        made = await api.made("/tools", {**BASE, "config": {**REQUEST, case.name: value}})
        assert made["config"][case.name] == value
        status, answer = await api("PATCH", f"/tools/{tool['id']}", {"config": {case.name: value}})
        assert (status, answer["data"]["config"][case.name]) == (200, value)


@pytest.mark.parametrize("case", REQUEST_FIELDS, ids=str)
async def test_the_request_refuses_everything_else(api: Api, case: FieldCase) -> None:
    for value in case.bad:
        inner = ".0" if case.name in ("headers", "body") and isinstance(value, list) else ""
        await _refused(api, {case.name: value}, f"config.{case.name}{inner}")


@pytest.mark.parametrize("missing", ["name", "type", "config", "config.url", "config.method"])
async def test_what_is_required_is_named(api: Api, missing: str) -> None:
    body: dict[str, Any] = {**BASE, "config": dict(REQUEST)}
    outer, _, inner = missing.partition(".")
    del (body[outer] if inner else body)[inner or outer]
    status, answer = await api("POST", "/tools", body)
    assert (status, answer["details"]) == (400, [{"field": missing, "message": "Is required"}])


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
async def test_a_problem_is_told_by_its_path(api: Api, config: dict[str, Any], field: str) -> None:
    await _refused(api, config, field)


async def test_a_parameter_is_optional_and_undescribed_unless_told(api: Api) -> None:
    body = [{"name": "city", "type": "string"}]
    whole = [{"name": "city", "type": "string", "description": "", "required": False}]
    tool = await api.made("/tools", {**BASE, "config": {**REQUEST, "body": body}})
    assert tool["config"]["body"] == whole
    _, answer = await api("PATCH", f"/tools/{tool['id']}", {"config": {"body": [*body, CITY | {"name": "b"}]}})
    assert answer["data"]["config"]["body"] == [*whole, CITY | {"name": "b"}]


@pytest.mark.parametrize("name", ["{{order id}}", "{{}}", "{{a-b}}", "{{#if x}}", "{{é}}", "{{open", "{{a}}{{b}"])
async def test_a_placeholder_that_can_have_no_value_is_refused(api: Api, name: str) -> None:
    await _refused(api, {"url": f"https://tools.example/{name}"}, "config.url")
    await _refused(api, {"headers": [{"key": "X-Order", "value": f"no {name}"}]}, "config.headers.0.value")


@pytest.mark.parametrize("value", ["Bearer {{token}}", '{"id":{{ id }}}', "{ }} {x}", "Zürich", " a\u00a0b "])
async def test_a_header_takes_placeholders_and_any_visible_text(api: Api, value: str) -> None:
    headers = [{"key": "!#$%&'*+-.^_`|~09azAZ", "value": value}]
    tool = await api.made("/tools", {**BASE, "config": {**REQUEST, "headers": headers}})
    assert tool["config"]["headers"] == headers


@pytest.mark.parametrize("value", ["a\r\nHost: b", "a\n", "\x00", "\t", "\x7f", "\x85", 1, None])
async def test_a_header_value_that_could_end_the_header_is_refused(api: Api, value: Any) -> None:
    await _refused(api, {"headers": [{"key": "X-Tag", "value": value}]}, "config.headers.0.value")


@pytest.mark.parametrize(
    "key", ["", "a b", "a:", "a\n", "é", "{{name}}", "Host", "content-length", "Transfer-Encoding", "CONNECTION", 1]
)
async def test_a_header_that_is_no_name_or_the_servers_own_is_refused(api: Api, key: Any) -> None:
    await _refused(api, {"headers": [{"key": key, "value": "x"}]}, "config.headers.0.key")


@pytest.mark.parametrize("given", [{name: value} for name, value in FULL.items()], ids=lambda given: next(iter(given)))
async def test_a_change_of_the_request_keeps_its_other_keys(api: Api, given: dict[str, Any]) -> None:
    other = {
        "url": "https://tools.example/b",
        "method": "PUT",
        "timeout": 100,
        "headers": [{"key": "A", "value": "b"}],
        "body": [{**CITY, "name": "b"}],
    }
    tool = await api.made("/tools", {**BASE, "description": "Weather", "config": other})
    status, answer = await api("PATCH", f"/tools/{tool['id']}", {"config": given})
    changed = {**tool, "config": {**other, **given}, "updatedAt": answer["data"]["updatedAt"]}
    assert (status, answer["data"]) == (200, changed)
    assert await api("GET", f"/tools/{tool['id']}") == (200, {"data": changed})


async def test_absent_keeps_and_null_clears(api: Api) -> None:
    tool = await api.made("/tools", {**BASE, "description": "Weather", "config": FULL})
    for body in ({}, {"config": {}}):
        _, answer = await api("PATCH", f"/tools/{tool['id']}", body)
        assert answer["data"] == {**tool, "updatedAt": answer["data"]["updatedAt"]}
    _, answer = await api("PATCH", f"/tools/{tool['id']}", {"description": None})
    assert answer["data"] == {**tool, "description": None, "updatedAt": answer["data"]["updatedAt"]}
    status, answer = await api("PATCH", f"/tools/{tool['id']}", {"config": None})
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["config"])


async def test_header_values_come_back_but_lie_encrypted_and_unlogged(api: Api) -> None:
    secret = f"hush-{uuid4()}"
    headers = [{"key": "Authorization", "value": f"Bearer {secret}"}]
    with capture_logs() as lines:
        tool = await api.made("/tools", {**BASE, "config": {**REQUEST, "headers": headers}})
        assert tool["config"]["headers"] == headers
        await api("PATCH", f"/tools/{tool['id']}", {"config": {"headers": headers, "timeout": 200}})
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
    for path in api.services.settings.data_dir.glob("trunkline.db*"):
        assert secret.encode() not in path.read_bytes()


async def test_a_list_is_newest_first_and_paged(api: Api) -> None:
    for number in range(3):
        await api.made("/tools", {**BASE, "name": f"Tool {number}"})
    _, answer = await api("GET", "/tools")
    order = [(each["createdAt"], each["id"]) for each in answer["data"]]
    assert [at for at, _ in order] == sorted((at for at, _ in order), reverse=True)
    _, answer = await api("GET", "/tools?limit=1&offset=1")
    assert answer["pagination"] == {"total": 3, "limit": 1, "offset": 1}
    assert [(each["createdAt"], each["id"]) for each in answer["data"]] == order[1:2]


async def test_a_tool_belongs_to_its_organization(api: Api) -> None:
    tool = await api.made("/tools", BASE)
    other = await api.of_another_organization()
    for client, item in ((other, tool["id"]), (api, str(uuid4())), (api, "x")):
        for method, body in (("GET", None), ("PATCH", {"name": "Mine now"}), ("DELETE", None)):
            assert await client(method, f"/tools/{item}", body) == (404, {"error": "Tool not found"})
    _, answer = await other("GET", "/tools")
    assert (answer["data"], answer["pagination"]["total"]) == ([], 0)
    assert await api("GET", f"/tools/{tool['id']}") == (200, {"data": tool})


async def test_the_tools_of_an_agent_must_be_the_organizations_own(api: Api) -> None:
    other = await api.of_another_organization()
    own, theirs = await api.made("/tools", BASE), await other.made("/tools", BASE)
    agent = await api.made("/agents", {"name": "Anna", "toolIds": [own["id"].upper()]})
    assert agent["toolIds"] == [own["id"]]
    for bad in (theirs["id"], str(uuid4()), "x", 1, None):
        for method, path in (("POST", "/agents"), ("PATCH", f"/agents/{agent['id']}")):
            status, answer = await api(method, path, {"name": "Bea", "toolIds": [own["id"], bad]})
            assert (status, [each["field"] for each in answer["details"]]) == (400, ["toolIds.1"]), bad
    assert await api("GET", f"/agents/{agent['id']}") == (200, {"data": agent})
    for value in ([], None):
        _, answer = await api("PATCH", f"/agents/{agent['id']}", {"toolIds": value})
        assert answer["data"]["toolIds"] == value


async def test_a_deleted_tool_leaves_its_agents(api: Api) -> None:
    gone, kept = await api.made("/tools", BASE), await api.made("/tools", BASE)
    for tool_ids in ([gone["id"], kept["id"]], [kept["id"]], None):
        await api.made("/agents", {"name": "Anna", "toolIds": tool_ids})
    before = (await api("GET", "/agents"))[1]["data"]
    deleted = {"data": {"id": gone["id"], "deleted": True}}
    assert await api("DELETE", f"/tools/{gone['id']}") == (200, deleted)
    assert await api("GET", f"/tools/{gone['id']}") == (404, {"error": "Tool not found"})
    for agent in before:
        after = (await api("GET", f"/agents/{agent['id']}"))[1]["data"]
        if agent["toolIds"] and gone["id"] in agent["toolIds"]:
            assert after["updatedAt"] > agent["updatedAt"]
            agent = {**agent, "toolIds": [kept["id"]], "updatedAt": after["updatedAt"]}
        assert after == agent
    listed = (await api("GET", "/agents"))[1]["data"]
    assert not any(gone["id"] in (each["toolIds"] or []) for each in listed)
