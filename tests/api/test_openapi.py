"""The description: valid, complete, and true of what the server answers."""

from __future__ import annotations

import json
import re
from typing import Any, cast
from uuid import uuid4

import pytest
from openapi_schema_validator import OAS30Validator
from openapi_spec_validator import validate

from api.routes import ROUTES, description
from tests.api.conftest import Api

DOCUMENT = json.loads(description())


def _operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, each) for path, methods in DOCUMENT["paths"].items() for method, each in methods.items()]


def _resolved(value: Any) -> Any:
    """The document's part with every reference replaced by what it names."""
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


def _problems(path: str, method: str, status: int, body: Any) -> list[str]:
    response = _resolved(DOCUMENT["paths"][path][method]["responses"][str(status)])
    schema = response["content"]["application/json"]["schema"]
    return [error.message for error in OAS30Validator(schema).iter_errors(body)]


def test_it_is_valid_openapi_3_0() -> None:
    assert DOCUMENT["openapi"] == "3.0.3"
    validate(DOCUMENT)


def test_it_has_every_operation_once_with_its_errors() -> None:
    assert {(path, method.upper()) for path, method, _ in _operations()} == {
        (each.path, each.method) for each in ROUTES
    }
    names = [each["operationId"] for _, _, each in _operations()]
    assert len(set(names)) == len(names)
    for path, _, operation in _operations():
        statuses = set(operation["responses"])
        assert statuses >= {"429", "500", "503"}
        assert ("404" in statuses) is ("{id}" in path)
        assert ("413" in statuses) is ("requestBody" in operation)
        if operation.get("security") != [{}]:
            assert "401" in statuses


def test_every_response_tells_of_the_rate_headers() -> None:
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
def test_bounds_formats_and_defaults_are_told(name: str, facts: dict[str, Any]) -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert facts.items() <= schemas["AgentCreate"]["properties"][name].items()
    facts.pop("default", None)
    change = schemas["AgentUpdate"]["properties"][name]
    assert facts.items() <= change.items()
    assert "default" not in change


def test_a_field_that_does_nothing_yet_says_so() -> None:
    for schema in ("AgentCreate", "AgentUpdate"):
        field = DOCUMENT["components"]["schemas"][schema]["properties"]["speculativeSilenceMs"]
        assert field["description"].endswith("; without effect in this version")


def test_what_is_required_and_refused_is_told() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["AgentCreate"]["required"] == ["name"]
    assert "required" not in schemas["AgentUpdate"]
    assert set(schemas["PhoneNumberCreate"]["required"]) == {"number", "provider"}
    for name in ("AgentCreate", "AgentUpdate", "PhoneNumberCreate", "PhoneNumberUpdate", "ExtractionField"):
        assert schemas[name]["additionalProperties"] is False
    assert re.fullmatch(schemas["PhoneNumberCreate"]["properties"]["number"]["pattern"], "+41441234567")


def test_no_response_schema_holds_a_secret() -> None:
    for path, method, operation in _operations():
        responses = json.dumps(_resolved(operation["responses"]))
        assert not re.search(r'"(sipPassword|postCallWebhookSecret|provider_\w+(Sid|Token))"', responses), (
            path,
            method,
        )


async def test_the_server_answers_as_described(api: Api) -> None:
    agent = await api.made("/agents", {"name": "Anna", "systemPrompt": "Help", "postCallExtractionSchema": []})
    phone = await api.made("/phone-numbers", {"number": "100", "provider": "sip"})
    for path, method, status, url, body in [
        ("/agents", "post", 201, "/agents", {"name": "Bea"}),
        ("/agents", "post", 400, "/agents", {}),
        ("/agents", "get", 200, "/agents", None),
        ("/agents", "get", 400, "/agents?limit=0", None),
        ("/agents/{id}", "get", 200, f"/agents/{agent['id']}", None),
        ("/agents/{id}", "patch", 200, f"/agents/{agent['id']}", {"isActive": False}),
        ("/agents/{id}", "delete", 200, f"/agents/{agent['id']}", None),
        ("/agents/{id}", "get", 404, f"/agents/{uuid4()}", None),
        ("/phone-numbers", "get", 200, "/phone-numbers", None),
        ("/phone-numbers/{id}", "get", 200, f"/phone-numbers/{phone['id']}", None),
        ("/calls", "get", 200, "/calls", None),
        ("/voices", "get", 200, "/voices", None),
        ("/slm-models", "get", 200, "/slm-models", None),
    ]:
        answered, answer = await api(method.upper(), url, body)
        assert answered == status
        assert _problems(path, method, status, answer) == [], (method, url)


async def test_it_is_served_without_a_key(api: Api) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        async with api.client.get("/v1/openapi.json", headers=headers) as response:
            assert (response.status, response.content_type) == (200, "application/json")
            assert cast(Any, await response.json()) == DOCUMENT
