"""Every field of a body has a bound, which the OpenAPI document has too; stored values over a bound stay usable."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
import sqlalchemy as sa
from pydantic import AfterValidator, ConfigDict, Field, JsonValue, PlainValidator

from api.routes import ROUTES, openapi_json
from api.schemas.base import Body, BoundedJsonObject, Id, Name
from api.schemas.bounds import bounds_whole_value
from storage import tables
from tests.api.conftest import Api
from tests.api.schemas.unbounded import unbounded

DOCUMENT = json.loads(openapi_json())
BODIES = {route.name: route.body for route in ROUTES if route.body is not None}


@pytest.mark.parametrize("name", BODIES)
def test_every_field_of_every_body_has_a_bound(name: str) -> None:
    assert unbounded(BODIES[name]) == []


def _identity(value: Any) -> Any:
    return value


@bounds_whole_value
def _accept_whole(value: Any) -> Any:
    return value


class _Inner(Body):
    bounded: Name
    text: str


class _Open(Body):
    model_config = ConfigDict(extra="allow")


class _PartlyBounded(Body):
    """A body of which only some fields are bounded."""

    name: Name
    id: Id
    given: BoundedJsonObject
    whole: Annotated[dict[str, JsonValue], AfterValidator(_accept_whole)]
    plain_whole: Annotated[bytes, PlainValidator(_accept_whole)]
    short_form: Annotated[str, Field(pattern=r"^[0-9]{1,4}$")]
    count: Annotated[int, Field(le=3)]
    text: str
    text_or_null: str | None = None
    by_default: Annotated[str, Field(min_length=1)] = "x"
    long_form: Annotated[str, Field(pattern=r"^[0-9]+$")]
    open_form: Annotated[str, Field(pattern=r"[0-9]{1,4}")]
    number: int
    many: list[Name]
    texts: Annotated[list[str], Field(max_length=3)]
    several: Annotated[list[_Inner], Field(max_length=3)]
    once_more: _Inner
    either: Name | list[Name]
    anything: JsonValue
    mapping: dict[str, int]
    open: _Open
    checked: Annotated[str, AfterValidator(_identity)]
    created: Annotated[bytes, PlainValidator(_identity)]


def test_a_field_without_a_bound_is_found() -> None:
    assert unbounded(_PartlyBounded) == [
        f"_PartlyBounded.{each}"
        for each in (
            "text",
            "text_or_null",
            "by_default",
            "long_form",
            "open_form",
            "number",
            "many",
            "texts.*",
            "several.*.text",
            "once_more.text",
            "either",
            "anything",
            "mapping",
            "open",
            "checked",
            "created",
        )
    ]


def _unbounded_in_document(schema: dict[str, Any], path: str) -> list[str]:
    """The paths without a bound in the OpenAPI document."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _unbounded_in_document(DOCUMENT["components"]["schemas"][name], path)
    if "allOf" in schema:
        return [each for part in schema["allOf"] for each in _unbounded_in_document(part, path)]
    match schema.get("type"):
        case "string":
            is_bounded = "maxLength" in schema or "enum" in schema or schema.get("format") == "uuid"
            return [] if is_bounded else [path]
        case "array":
            return ([] if "maxItems" in schema else [path]) + _unbounded_in_document(schema["items"], f"{path}.*")
        case "integer":
            return [] if "maximum" in schema or "exclusiveMaximum" in schema else [path]
        case "object" if schema.get("additionalProperties") is False:
            fields = schema.get("properties", {}).items()
            return [each for name, field in fields for each in _unbounded_in_document(field, f"{path}.{name}")]
        case "object":
            is_bounded = "maxProperties" in schema and "KiB" in schema["description"]
            return [] if is_bounded else [path]
        case "number" | "boolean":
            return []
        case _:
            return [path]


def test_the_openapi_document_has_every_bound() -> None:
    operations = [each for methods in DOCUMENT["paths"].values() for each in methods.values()]
    bodies = {each["operationId"]: each["requestBody"] for each in operations if "requestBody" in each}
    assert "application/octet-stream" in bodies.pop("importModel")["content"]
    assert bodies.keys() == BODIES.keys()
    for name, body in bodies.items():
        assert _unbounded_in_document(body["content"]["application/json"]["schema"], name) == []


TARGET = {"name": "Sales", "description": "", "number": "12", "mode": "cold"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/agents", {"transferTargets": [{**TARGET, "name": f"{n}"} for n in range(65)]}, "transferTargets"),
        ("/agents", {"transferTargets": [TARGET, {**TARGET, "name": "SALES"}]}, "transferTargets.1.name"),
        ("/agents", {"transferTargets": [{**TARGET, "description": "x" * 2001}]}, "transferTargets.0.description"),
        ("/agents", {"postCallWebhookSecret": "x" * 1025}, "postCallWebhookSecret"),
        ("/agents", {"postCallWebhookUrl": f"https://x/{'a' * 4087}"}, "postCallWebhookUrl"),
        ("/agents", {"toolIds": ["5b04ac7c-2be9-4887-97d5-5fafa43022f1"] * 501}, "toolIds"),
        ("/tools", {"description": "x" * 4001}, "description"),
        ("/phone-numbers", {"name": "x" * 256}, "name"),
        ("/phone-numbers", {"sipPassword": "x" * 1025}, "sipPassword"),
    ],
)
async def test_a_value_over_its_bound_is_rejected_with_the_name_of_its_field(
    api: Api, path: str, body: dict[str, Any], field: str
) -> None:
    kind = {"type": "http", "config": {"url": "https://x/", "method": "GET"}} if path == "/tools" else {}
    number = {"number": "200", "provider": "sip"} if path == "/phone-numbers" else {}
    status, answer = await api("POST", path, {"name": "Anna", **kind, **number, **body})
    assert (status, [each["field"] for each in answer["details"]]) == (400, [field])


async def test_the_largest_values_within_the_bounds_are_accepted(api: Api) -> None:
    targets = [{**TARGET, "name": f"{n:255}", "description": "é" * 2000} for n in range(64)]
    agent = await api.create("/agents", {"name": "Anna", "transferTargets": targets})
    assert agent["transferTargets"] == [{**each, "phoneNumberId": None} for each in targets]


async def test_stored_values_over_the_bounds_are_returned_and_other_fields_can_be_changed(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Anna"})
    number = await api.create("/phone-numbers", {"number": "200", "provider": "sip"})
    twins = [{**TARGET, "description": "x" * 2500}] * 70

    def before_the_bounds(conn: sa.Connection) -> None:
        conn.execute(sa.update(tables.agents).values(transfer_targets=twins))
        conn.execute(sa.update(tables.phone_numbers).values(name="x" * 300))

    await api.services.database.write(before_the_bounds)
    for path, changed in ((f"/agents/{agent['id']}", {"isActive": False}), (f"/phone-numbers/{number['id']}", {})):
        assert (await api("GET", path))[0] == 200
        status, answer = await api("PATCH", path, changed)
        assert status == 200
        old = {key: value for key, value in answer["data"].items() if key in ("transferTargets", "name")}
        shown = [{**each, "phoneNumberId": None} for each in twins]
        assert old.get("transferTargets", shown) == shown
        assert old["name"] in ("Anna", "x" * 300)
    status, answer = await api("PATCH", f"/agents/{agent['id']}", {"transferTargets": twins})
    assert (status, answer["details"][0]["field"]) == (400, "transferTargets")
