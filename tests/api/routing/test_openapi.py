"""The OpenAPI document is valid and complete. The contract tests compare the server's responses with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from jsonschema.exceptions import best_match
from openapi_schema_validator import OAS30Validator, oas30_format_checker
from openapi_spec_validator import validate

from api.auth.session_authentication import CSRF_HEADER
from api.auth.session_cookie import SESSION_COOKIE
from api.routes import ROUTES, openapi_json
from tests.api.conftest import Api

DOCUMENT = json.loads(openapi_json())


def _operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, each) for path, methods in DOCUMENT["paths"].items() for method, each in methods.items()]


def _resolved(value: Any) -> Any:
    """A part of the document with its references resolved."""
    if isinstance(value, list):
        return [_resolved(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        target = DOCUMENT
        for name in value["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        return _resolved(target)
    return {name: _resolved(each) for name, each in value.items()}


def test_it_is_valid_openapi_3_0() -> None:
    assert DOCUMENT["openapi"] == "3.0.3"
    validate(DOCUMENT)


def _properties(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All properties of a schema, nested ones included, with their paths."""
    for name, each in schema.get("properties", {}).items():
        yield f"{path}.{name}", each
        yield from _properties(f"{path}.{name}", each)
        yield from _properties(f"{path}.{name}[]", each.get("items", {}))


PROPERTIES = [each for name, schema in DOCUMENT["components"]["schemas"].items() for each in _properties(name, schema)]
PARAMETERS = [
    (f"{operation['operationId']}.{each['name']}", each)
    for _, _, operation in _operations()
    for each in _resolved(operation.get("parameters", []))
]


def test_every_property_and_parameter_has_a_description_and_an_example() -> None:
    assert len(PROPERTIES) > 500 and len(PARAMETERS) > 50
    bare = [path for path, each in (*PROPERTIES, *PARAMETERS) if not each.get("description") or "example" not in each]
    assert bare == []


def test_the_examples_are_valid() -> None:
    examples = [(path, each, each["example"]) for path, each in PROPERTIES]
    examples += [(path, each["schema"], each["example"]) for path, each in PARAMETERS]
    wrong = []
    for path, schema, example in examples:
        found = best_match(OAS30Validator(_resolved(schema), format_checker=oas30_format_checker).iter_errors(example))
        if found is not None:
            wrong.append(f"{path}: {found.message}")
    assert wrong == []


def test_it_has_every_operation_once_with_its_errors() -> None:
    assert {(path, method.upper()) for path, method, _ in _operations()} == {
        (each.path, each.method) for each in ROUTES
    }
    names = [each["operationId"] for _, _, each in _operations()]
    assert len(set(names)) == len(names)
    for path, _, operation in _operations():
        statuses = set(operation["responses"])
        assert statuses >= {"429", "500", "503"}
        assert "404" in statuses or "{id}" not in path
        assert ("413" in statuses) is ("requestBody" in operation)
        if operation.get("security") != [{}]:
            assert "401" in statuses


def test_a_session_is_the_other_way_in_and_writes_with_it_need_the_csrf_token() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert (schemes["session"]["in"], schemes["session"]["name"]) == ("cookie", SESSION_COOKIE)
    assert (schemes["csrfToken"]["in"], schemes["csrfToken"]["name"]) == ("header", CSRF_HEADER)
    for path, method, operation in _operations():
        ways = operation.get("security", DOCUMENT["security"])
        if ways == [{}]:
            continue
        assert {"apiKey": []} in ways
        assert ({"session": []} if method == "get" else {"session": [], "csrfToken": []}) in ways, (path, method)


def test_an_operation_that_not_every_user_may_use_documents_403() -> None:
    roles = {(each.path, each.method.lower()): each.role for each in ROUTES}
    for path, method, operation in _operations():
        if roles[path, method] != "viewer":
            assert "403" in operation["responses"], (path, method)


def test_every_response_documents_the_rate_limit_headers() -> None:
    for path, method, operation in _operations():
        for response in _resolved(operation)["responses"].values():
            assert {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} <= set(response["headers"]), (
                path,
                method,
            )


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("name", {"type": "string", "minLength": 1, "maxLength": 255}),
        ("systemPrompt", {"type": "string", "maxLength": 32000}),
        ("voiceId", {"type": "string", "format": "uuid", "nullable": True}),
        ("voiceSpeed", {"type": "number", "minimum": 0.6, "maximum": 1.5, "default": 1}),
        ("turnEndpointDelay", {"type": "integer", "minimum": 50, "maximum": 2000, "default": 100, "nullable": True}),
        ("fallbackSilenceMs", {"type": "integer", "minimum": 0, "maximum": 10000, "default": 3000, "nullable": True}),
        ("allowEndCall", {"type": "boolean", "default": True}),
        ("firstSpeaker", {"type": "string", "enum": ["user", "agent"], "default": "user"}),
        ("maxCallDurationSeconds", {"type": "integer", "minimum": 30, "maximum": 3600, "default": 600}),
        ("postCallWebhookUrl", {"type": "string", "format": "uri", "nullable": True}),
        ("postCallWebhookSecret", {"type": "string", "writeOnly": True, "nullable": True}),
        ("holdMusicUrl", {"type": "string", "maxLength": 500, "nullable": True}),
    ],
)
def test_limits_formats_and_defaults_are_documented(name: str, facts: dict[str, Any]) -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert facts.items() <= schemas["AgentCreate"]["properties"][name].items()
    facts.pop("default", None)
    change = schemas["AgentUpdate"]["properties"][name]
    assert facts.items() <= change.items()
    assert "default" not in change


def test_required_fields_and_unknown_fields_are_documented() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["AgentCreate"]["required"] == ["name"]
    assert "required" not in schemas["AgentUpdate"]
    assert set(schemas["PhoneNumberCreate"]["required"]) == {"number", "provider"}
    for name in ("AgentCreate", "AgentUpdate", "PhoneNumberCreate", "PhoneNumberUpdate", "ExtractionField"):
        assert schemas[name]["additionalProperties"] is False
    assert re.fullmatch(schemas["PhoneNumberCreate"]["properties"]["number"]["pattern"], "+41441234567")


def test_every_field_of_a_response_is_required_in_its_schema() -> None:
    """Fields that older rows lack have defaults; only prices, usage and transfers may be absent."""
    schemas = DOCUMENT["components"]["schemas"]
    for name in ("Agent", "PhoneNumber", "Timeline", "TurnTimes", "ToolTimes", "Tool", "Call", "CallListItem"):
        optional = set(schemas[name]["properties"]) - set(schemas[name]["required"])
        assert optional <= {"cost", "usage", "transferCalls"}, name


def test_no_response_schema_has_a_secret() -> None:
    for path, method, operation in _operations():
        responses = json.dumps(_resolved(operation["responses"]))
        assert not re.search(r'"(sipPassword|postCallWebhookSecret|provider_\w+(Sid|Token))"', responses), (
            path,
            method,
        )


async def test_it_is_served_without_a_key(api: Api) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        async with api.client.get("/v1/openapi.json", headers=headers) as response:
            assert (response.status, response.content_type) == (200, "application/json")
            assert cast(Any, await response.json()) == DOCUMENT
