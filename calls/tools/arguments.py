"""Parsing of the JSON arguments that a language model wrote for a tool, by the tool's definition; the errors are for
the model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from config.errors import TrunklineError

MAX_ARGUMENT_BYTES: Final = 32 * 1024
"""Bytes of the JSON in UTF-8."""
MAX_DEPTH: Final = 16
"""Levels of nested objects and arrays."""
MAX_REPORTED_PROBLEMS: Final = 5
"""Problems in one error message."""
MAX_REPORTED_NAME_LENGTH: Final = 64
"""Characters of an unknown name that are shown in a message."""
MAX_EXACT_FLOAT: Final = 2**53
"""Up to this number a float represents every integer exactly."""
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_WITH_ARTICLE: Final = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "object": "an object",
    "array": "an array",
}


class InvalidArguments(TrunklineError):
    """The arguments do not match the definition; the message is for the model."""


class _TypeMismatch(Exception):
    """The value has another type."""


def parse_arguments(text: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments in `text` by the JSON Schema `parameters`: its `properties`, their `type` and `required`
    count. An empty text is an empty object; null is a missing argument. Types that models confuse without loss are
    converted: "5" and 5.0 to an integer, "2.5" to a number, "true" to a boolean, 5 to a string. Raises
    `InvalidArguments`."""
    given = {name: value for name, value in _parse_object(text).items() if value is not None}
    declared: Mapping[str, Any] = parameters.get("properties", {})
    arguments: dict[str, Any] = {}
    problems: list[str] = []
    for name in parameters.get("required", ()):
        if name not in given:
            problems.append(f"parameter `{name}` is required")
    for name, value in given.items():
        if name not in declared:
            problems.append(
                f"there is no parameter `{name[:MAX_REPORTED_NAME_LENGTH]}`, {_existing_parameters(declared)}"
            )
            continue
        json_type = declared[name]["type"]
        try:
            arguments[name] = _coerced(value, json_type)
        except _TypeMismatch:
            problems.append(f"parameter `{name}` must be {_WITH_ARTICLE[json_type]}, not {_type_in_words(value)}")
    if problems:
        raise InvalidArguments("; ".join(problems[:MAX_REPORTED_PROBLEMS]))
    return arguments


def _existing_parameters(declared: Mapping[str, Any]) -> str:
    return f"only {', '.join(f'`{name}`' for name in declared)}" if declared else "the tool takes none"


def _parse_object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    if len(text) > MAX_ARGUMENT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_ARGUMENT_BYTES:
        raise InvalidArguments(f"the arguments are longer than {MAX_ARGUMENT_BYTES // 1024} KiB")
    try:
        value = json.loads(text)
    except RecursionError:
        raise InvalidArguments("the arguments are nested too deeply") from None
    except ValueError:
        raise InvalidArguments("the arguments are no valid JSON; write one JSON object") from None
    if not isinstance(value, dict):
        raise InvalidArguments(f"the arguments must be one JSON object, not {_type_in_words(value)}")
    _check_writable(value)
    return value


def _check_writable(value: dict[str, Any]) -> None:
    """Check the depth of the value, and that it can be written as JSON again. Raises `InvalidArguments`."""
    for each, depth in walk_json(value):
        if depth > MAX_DEPTH:
            raise InvalidArguments("the arguments are nested too deeply")
        if isinstance(each, float) and not math.isfinite(each):
            raise InvalidArguments("numbers must be finite")
        if isinstance(each, str) and any("\ud800" <= character <= "\udfff" for character in each):
            raise InvalidArguments("the arguments contain a lone surrogate")


def walk_json(value: Any) -> Iterator[tuple[Any, int]]:
    """Yields every value and name in a JSON value, with its depth."""
    stack: list[tuple[Any, int]] = [(value, 1)]
    while stack:
        each, depth = stack.pop()
        yield each, depth
        if isinstance(each, dict):
            stack.extend((name, depth) for name in each)
            stack.extend((inner, depth + isinstance(inner, dict | list)) for inner in each.values())
        elif isinstance(each, list):
            stack.extend((inner, depth + isinstance(inner, dict | list)) for inner in each)


def _coerced(value: Any, json_type: str) -> Any:
    """Returns the value converted to a JSON Schema type. A `bool` is no integer. Raises `_TypeMismatch`."""
    match json_type, value:
        case ("boolean", bool()) | ("object", dict()) | ("array", list()) | ("string", str()):
            return value
        case "boolean", str() if value.lower() in ("true", "false"):
            return value.lower() == "true"
        case _, bool():
            raise _TypeMismatch
        case ("integer" | "number", int()) | ("number", float()):
            return value
        case "integer", float() if value.is_integer() and abs(value) <= MAX_EXACT_FLOAT:
            return int(value)
        case "integer", str() if _INTEGER.fullmatch(value):
            return int(value)
        case "number", str() if _NUMBER.fullmatch(value):
            return json.loads(value)
        case "string", int():
            return str(value)
        case _:
            raise _TypeMismatch


def _type_in_words(value: Any) -> str:
    """Returns the JSON type of a value in words."""
    match value:
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "null"
