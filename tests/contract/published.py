"""The published description, held against what the server really answers."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Final

from openapi_schema_validator import OAS30Validator, oas30_format_checker

UNDESCRIBED: Final = frozenset({404, 405})
"""What a path or method that there is no operation for is answered, with a valid key."""


class Published:
    """The document, in which an object has the properties that it names and no others."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = _closed(document)
        self._validators: dict[tuple[str, str, str], OAS30Validator] = {}

    @cached_property
    def operations(self) -> set[tuple[str, str]]:
        """Every method and path."""
        return {(method.upper(), path) for path, methods in self.document["paths"].items() for method in methods}

    @cached_property
    def _templates(self) -> list[tuple[str, re.Pattern[str]]]:
        """Paths without a parameter first: they win."""
        paths = sorted(self.document["paths"], key=lambda path: path.count("{"))
        return [(path, re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path))) for path in paths]

    def operation(self, method: str, path: str) -> tuple[str, str] | None:
        """The operation that answers a request; a HEAD is answered as a GET. `path` is below `/v1`."""
        method = "GET" if method == "HEAD" else method
        template = next((template for template, pattern in self._templates if pattern.fullmatch(path)), "")
        return (method, template) if (method, template) in self.operations else None

    def problems(self, method: str, path: str, status: int, media_type: str, body: Any) -> list[str]:
        """What the document does not say of this response."""
        operation = self.operation(method, path)
        if operation is None:
            told = [] if status in {*UNDESCRIBED, 401, 429} else [f"{status} of an operation that is not described"]
            return told + _errors(self._validator("components", "schemas", "Error"), body)
        responses = self.document["paths"][operation[1]][operation[0].lower()]["responses"]
        if str(status) not in responses:
            return [f"{status} is not described for {operation}"]
        response = self._resolved(responses[str(status)])
        if media_type not in response["content"]:
            return [f"{media_type} is not described for {operation} {status}"]
        if media_type != "application/json":
            return []
        key = (*operation, str(status))
        if key not in self._validators:
            self._validators[key] = self._made(response["content"][media_type]["schema"])
        return _errors(self._validators[key], body)

    def _validator(self, *place: str) -> OAS30Validator:
        return self._made({"$ref": "#/" + "/".join(place)})

    def _made(self, schema: dict[str, Any]) -> OAS30Validator:
        whole = {"components": self.document["components"], "allOf": [schema]}
        return OAS30Validator(whole, format_checker=oas30_format_checker)

    def _resolved(self, value: dict[str, Any]) -> dict[str, Any]:
        target: Any = self.document
        if "$ref" not in value:
            return value
        for name in value["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        return dict(target)


def _errors(validator: OAS30Validator, body: Any) -> list[str]:
    return [f"{'.'.join(map(str, each.absolute_path))}: {each.message}" for each in validator.iter_errors(body)]


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    closed = {name: _closed(each) for name, each in value.items()}
    if closed.get("type") == "object" and "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed
