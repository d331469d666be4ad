"""Generates the OpenAPI 3.0.3 document from the routes."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonRef, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema, to_json

from api.routing.openapi_fields import EXAMPLE_ID, document_properties, known_description, known_example
from api.routing.openapi_forms import form_name, form_schema
from api.routing.openapi_texts import (
    ERROR_EXAMPLES,
    IDEMPOTENCY_KEY,
    INTRODUCTION,
    RATE_LIMIT_HEADERS,
    SECURITY_SCHEMES,
    STATUS_DESCRIPTIONS,
    TAGS,
)
from api.routing.route import (
    DataResponse,
    DeletedResponse,
    FileResponse,
    JsonResponse,
    ListResponse,
    PageResponse,
    ResultsResponse,
    Route,
)
from api.routing.validation import UPLOAD_FORM
from api.schemas.base import NoBody
from api.schemas.file_upload import FileUpload
from storage.accounts.quotas import BYTES, COUNTS, QUOTAS

SCHEMA_REF: Final = "#/components/schemas/{model}"
ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string"},
        "details": {
            "type": "array",
            "description": "For validation errors: one entry for each problem; for 401: the fault of the key or link",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {
                    "field": {"type": "string", "description": "JSON path of the field, such as config.headers.0.key"},
                    "message": {"type": "string"},
                },
            },
        },
        "quota": {
            "type": "object",
            "description": "For an exceeded quota of the organization, with the status 403 or 413",
            "required": ["name", "used", "allowed"],
            "properties": {
                "name": {"type": "string", "enum": list(QUOTAS)},
                "used": {"type": "integer", "description": "Items or bytes"},
                "allowed": {"type": "integer", "description": "Items or bytes"},
            },
        },
        "retryAfter": {"type": "integer", "description": "For rate limits: seconds", "minimum": 1, "maximum": 60},
    },
}
PAGINATION: Final = {
    "type": "object",
    "required": ["total", "limit", "offset"],
    "properties": {name: {"type": "integer"} for name in ("total", "limit", "offset")},
}
DELETED: Final = {
    "type": "object",
    "required": ["id", "deleted"],
    "properties": {"id": {"type": "string", "format": "uuid"}, "deleted": {"type": "boolean", "enum": [True]}},
}
EMPTY_BODY: Final = {"type": "object", "additionalProperties": False, "description": "Empty: `{}`, or no body at all."}


COMMON_HEADERS: Final = {
    **{
        name: {"description": text, "required": True, "schema": {"type": "integer"}}
        for name, text in RATE_LIMIT_HEADERS.items()
    },
    "X-Request-Id": {
        "description": "Identifies the request in the server's log",
        "required": True,
        "schema": {"type": "string"},
    },
}

_SESSION_THAT_READS: Final[list[dict[str, Any]]] = [{"session": []}]
_SESSION_THAT_WRITES: Final[list[dict[str, Any]]] = [{"session": [], "csrfToken": []}]

RETRY_AFTER: Final = {"description": "Seconds", "schema": {"type": "integer"}}
IDEMPOTENT_REPLAY: Final = {
    "description": "Present if this is the stored response to an earlier request",
    "schema": {"type": "string", "enum": ["true"]},
}


class OpenApi30Schema(GenerateJsonSchema):
    """JSON schemas of pydantic models for OpenAPI 3.0: `nullable` and `enum` in place of null types and `const`."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Returns False: a title would repeat the name of the field."""
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """`nullable: true` in place of the type null."""
        inner = self.generate_inner(schema["schema"])
        if "$ref" in inner:
            # "nullable" is valid only beside "type", so the referenced schema is repeated here.
            inner = self.get_schema_from_definitions(JsonRef(inner["$ref"])) or inner
        if "enum" in inner:
            return {**inner, "enum": [*inner["enum"], None], "nullable": True}
        return {**inner, "nullable": True}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        """`enum` in place of `const`."""
        return {"type": "string", "enum": list(schema["expected"])}


def openapi_document(routes: Iterable[Route]) -> bytes:
    """Returns the OpenAPI document of these routes, as JSON."""
    routes = list(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    schemas = copy.deepcopy({**_schemas(routes), "Error": ERROR, "Pagination": PAGINATION, "Deleted": DELETED})
    document_properties(schemas)
    forms = {each.body.__name__ for each in routes if each.body is not None and issubclass(each.body, FileUpload)}
    schemas |= {form_name(each): form_schema(schemas[each]) for each in sorted(forms)}
    document = {
        "openapi": "3.0.3",
        "info": {
            "title": "Trunkline",
            "version": "1",
            "description": INTRODUCTION,
            "license": {"name": "GPL-3.0-or-later"},
        },
        "servers": [{"url": "/v1"}],
        "security": [{"apiKey": []}, *_SESSION_THAT_READS],
        "tags": [{"name": tag, "description": TAGS[tag]} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "headers": COMMON_HEADERS,
            "parameters": {"IdempotencyKey": IDEMPOTENCY_KEY},
            "responses": {f"Error{status}": _error_response(status) for status in STATUS_DESCRIPTIONS},
            "securitySchemes": SECURITY_SCHEMES,
        },
    }
    return to_json(document)


def _models(routes: list[Route]) -> list[tuple[type[BaseModel], JsonSchemaMode]]:
    models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {}
    for route in routes:
        if route.body not in (None, NoBody):
            models[route.body, "validation"] = None
        if isinstance(route.response, DataResponse | PageResponse | ListResponse | ResultsResponse):
            models[route.response.view, "serialization"] = None
    return list(models)


def _schemas(routes: list[Route]) -> dict[str, Any]:
    _, definitions = models_json_schema(
        _models(routes), by_alias=True, ref_template=SCHEMA_REF, schema_generator=OpenApi30Schema
    )
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": {
            **_successes(route),
            **{str(status): _ref("responses", f"Error{status}") for status in _statuses(route)},
        },
    }
    if route.description is not None:
        operation["description"] = route.description
    if route.body is not None:
        required = not issubclass(route.body, NoBody)
        content: dict[str, Any] = {
            "schema": EMPTY_BODY if route.body is NoBody else _ref("schemas", route.body.__name__)
        }
        if route.example is not None:
            content["example"] = route.example
        operation["requestBody"] = {"required": required, "content": {"application/json": content}}
        if issubclass(route.body, FileUpload):
            form = {"schema": _ref("schemas", form_name(route.body.__name__))}
            operation["requestBody"]["content"][UPLOAD_FORM] = form
    operation |= _security(route)
    if route.upload is not None:
        file = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": {route.upload: file}}
    return operation


def _security(route: Route) -> dict[str, Any]:
    """What opens the operation, unless it is what the document says of all: a key, or the cookie of a session."""
    if route.access == "open":
        return {"security": [{}]}
    if route.access == "link":
        return {"security": [{"apiKey": []}, *_SESSION_THAT_READS, {}]}
    return {} if route.method == "GET" else {"security": [{"apiKey": []}, *_SESSION_THAT_WRITES]}


def _statuses(route: Route) -> list[int]:
    """The error statuses of an operation."""
    statuses = {400, 429, 500, 503, *route.errors}
    if route.access != "open":
        statuses.add(401)
    if route.item is not None:
        statuses.add(404)
    if route.body is not None:
        statuses |= {408, 413}
    if any(each in COUNTS for each in route.quotas) or _may_refuse_sessions(route):
        statuses.add(403)
    if route.method == "POST" or any(each in BYTES for each in route.quotas):
        statuses.add(413)
    if route.leaves_disk_reserve:
        statuses.add(507)
    if isinstance(route.response, FileResponse) and route.response.ranges:
        statuses.add(416)
    return sorted(statuses)


def _may_refuse_sessions(route: Route) -> bool:
    """True if a user may lack the role, or a page the CSRF token."""
    return route.access != "open" and (route.role != "viewer" or route.method != "GET")


def _parameters(route: Route) -> list[dict[str, Any]]:
    schema = route.query.model_json_schema(schema_generator=OpenApi30Schema, ref_template=SCHEMA_REF)
    parameters = [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            **_parameter(f"{route.name}.{name}", each),
        }
        for name, each in schema.get("properties", {}).items()
    ]
    if route.item is not None:
        uuid = {"type": "string", "format": "uuid"}
        item = f"Identifies the {route.item.lower()}"
        parameters.insert(
            0,
            {"name": "id", "in": "path", "required": True, "description": item, "example": EXAMPLE_ID, "schema": uuid},
        )
    if route.numbered is not None:
        number = {"type": "integer", "minimum": 1}
        what = f"Number of the {route.numbered.lower()}"
        parameters.insert(
            1, {"name": "n", "in": "path", "required": True, "description": what, "example": 3, "schema": number}
        )
    if route.method == "POST":
        parameters.append(_ref("parameters", "IdempotencyKey"))
    return parameters


def _parameter(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The parameter object of a field `operation.name`: without null, because a query parameter can only be absent."""
    inner = {name: value for name, value in schema.items() if name not in ("nullable", "title", "description")}
    if "enum" in inner:
        inner["enum"] = [each for each in inner["enum"] if each is not None]
    if inner.get("default", "") is None:
        del inner["default"]
    facts = {
        "description": schema.get("description") or known_description(path),
        "example": known_example(path, inner),
    }
    return {**{name: value for name, value in facts.items() if value is not None}, "schema": inner}


def _successes(route: Route) -> dict[str, Any]:
    """The responses with a success status, by status; a file also has 206."""
    success = _success(route)
    if isinstance(route.response, FileResponse) and route.response.ranges:
        return {"200": success, "206": {**success, "description": "The range of the Range header"}}
    return {str(route.status): success}


def _success(route: Route) -> dict[str, Any]:
    match route.response:
        case DataResponse(view, other_media_types):
            content = _json(_object(data=_ref("schemas", view.__name__)))
            for media_type in other_media_types:
                binary = {} if media_type.startswith("text/") else {"format": "binary"}
                content[media_type] = {"schema": {"type": "string", **binary}}
        case PageResponse(view):
            items = {"type": "array", "items": _ref("schemas", view.__name__)}
            content = _json(_object(data=items, pagination=_ref("schemas", "Pagination")))
        case ListResponse(view):
            content = _json(_object(data={"type": "array", "items": _ref("schemas", view.__name__)}))
        case ResultsResponse(view):
            content = _json(_object(results={"type": "array", "items": _ref("schemas", view.__name__)}))
        case DeletedResponse():
            content = _json(_object(data=_ref("schemas", "Deleted")))
        case FileResponse(media_type):
            content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
        case JsonResponse():
            content = _json({"type": "object"})
    headers: dict[str, Any] = _common_headers()
    if route.method == "POST":
        headers["Idempotent-Replay"] = IDEMPOTENT_REPLAY
    return {"description": "Success", "headers": headers, "content": content}


def _error_response(status: int) -> dict[str, Any]:
    headers: dict[str, Any] = _common_headers()
    if status in (429, 503):
        headers["Retry-After"] = RETRY_AFTER
    content = {"application/json": {"schema": _ref("schemas", "Error"), "example": ERROR_EXAMPLES[status]}}
    return {"description": STATUS_DESCRIPTIONS[status], "headers": headers, "content": content}


def _common_headers() -> dict[str, Any]:
    return {name: _ref("headers", name) for name in COMMON_HEADERS}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}
