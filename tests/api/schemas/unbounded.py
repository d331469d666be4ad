"""Finds fields without a bound in the model of a body: in what is enforced, not in what is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from re import _parser
from typing import Any, Final, cast

from pydantic import BaseModel

from api.schemas.bounds import WHOLE_VALUE_VALIDATORS

LONGEST_PATTERN: Final = 1000
"""A pattern whose matches are at most this long is a bound."""
BOUNDED: Final = frozenset({"bool", "date", "datetime", "enum", "float", "literal", "none", "time", "uuid"})
"""Types whose values have a limited size."""


def unbounded(model: type[BaseModel]) -> list[str]:
    """The path of every string, list, object and whole number without a maximum size."""
    return list(_Search().within(cast(dict[str, Any], model.__pydantic_core_schema__), model.__name__))


class _Search:
    """Searches one model. Referenced schemas are found by their names."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._around: set[str] = set()

    def within(self, schema: Mapping[str, Any], path: str) -> Iterator[str]:
        """Yields each path below without a bound."""
        if schema["type"] == "definitions":
            self._named |= {each["ref"]: each for each in schema["definitions"]}
        if schema["type"] == "definition-ref":
            yield from self._referred(schema["schema_ref"], path)
        elif "function" not in schema or schema["function"]["function"] not in WHOLE_VALUE_VALIDATORS:
            if _is_loose(schema):
                yield path
            for below, inner in _parts(schema):
                yield from self.within(inner, f"{path}{below}")

    def _referred(self, name: str, path: str) -> Iterator[str]:
        if name not in self._around:  # a recursive schema: its missing bounds are reported where it begins
            self._around.add(name)
            yield from self.within(self._named[name], path)
            self._around.discard(name)


def _is_loose(schema: Mapping[str, Any]) -> bool:
    """True if the schema itself, not its parts, allows values of any size; also for unknown schemas."""
    match schema["type"]:
        case "str" | "bytes":
            return "max_length" not in schema and not _is_short(schema.get("pattern"))
        case "int":
            return "le" not in schema and "lt" not in schema
        case "list" | "set":
            return "max_length" not in schema
        case "model":
            return schema.get("config", {}).get("extra_fields_behavior") == "allow"
        case "model-fields":
            return False
        case kind:
            return kind not in BOUNDED and (kind == "dict" or not _parts(schema))


def _parts(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The parts of a schema, with what they add to the path."""
    match schema["type"]:
        case "model-fields":
            return [(f".{name}", field["schema"]) for name, field in schema["fields"].items()]
        case "list" | "set":
            return [(".*", schema["items_schema"])]
        case "union":
            return [("", each[0] if isinstance(each, tuple) else each) for each in schema["choices"]]
        case _:  # a default, something nullable, a model, a function
            return [("", schema["schema"])] if isinstance(schema.get("schema"), Mapping) else []


def _is_short(pattern: str | None) -> bool:
    if pattern is None or not (pattern.startswith("^") and pattern.endswith("$")):
        return False
    return int(_parser.parse(pattern).getwidth()[1]) <= LONGEST_PATTERN
