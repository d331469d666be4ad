"""What a language model wrote for a tool: JSON, which becomes values that fit the tool's definition, or words that say
what is wrong with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from config.errors import TrunklineError

MAX_ARGUMENT_BYTES: Final = 32 * 1024
"""Of the JSON, in UTF-8."""
MAX_DEPTH: Final = 16
"""Objects and arrays inside one another."""
MAX_REPORTED_PROBLEMS: Final = 5
"""Problems that are told at once."""
MAX_REPORTED_NAME: Final = 64
"""Characters that are told of a name that the model has made up."""
MAX_EXACT_FLOAT: Final = 2**53
"""Up to here every whole number has a float of its own."""
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
    """They do not fit; the message tells the model what to do about it."""


class _TypeMismatch(Exception):
    """The value is of another type."""


def parse_arguments(text: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values in `text` by the JSON Schema `parameters`, of which `properties`, their `type` and `required` count.
    Nothing (an empty text) is an empty object; null stands for a parameter that is not given. Habits of models that
    lose nothing are let through: "5" and 5.0 for an integer, "2.5" for a number, "true" for a boolean, 5 for a string.
    Raises `InvalidArguments`."""
    given = {name: value for name, value in _object_in(text).items() if value is not None}
    declared: Mapping[str, Any] = parameters.get("properties", {})
    fitting: dict[str, Any] = {}
    problems: list[str] = []
    for name in parameters.get("required", ()):
        if name not in given:
            problems.append(f"parameter `{name}` is required")
    for name, value in given.items():
        if name not in declared:
            problems.append(f"there is no parameter `{name[:MAX_REPORTED_NAME]}`, {_there_are(declared)}")
            continue
        wanted = declared[name]["type"]
        try:
            fitting[name] = _coerced(value, wanted)
        except _TypeMismatch:
            problems.append(f"parameter `{name}` must be {_WITH_ARTICLE[wanted]}, not {_type_in_words(value)}")
    if problems:
        raise InvalidArguments("; ".join(problems[:MAX_REPORTED_PROBLEMS]))
    return fitting


def _there_are(declared: Mapping[str, Any]) -> str:
    return f"only {', '.join(f'`{name}`' for name in declared)}" if declared else "the tool takes none"


def _object_in(text: str) -> dict[str, Any]:
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
    _check_all(value)
    return value


def _check_all(value: dict[str, Any]) -> None:
    """Everything in it can be written as JSON again, in bounds."""
    for each, depth in walk(value):
        if depth > MAX_DEPTH:
            raise InvalidArguments("the arguments are nested too deeply")
        if isinstance(each, float) and not math.isfinite(each):
            raise InvalidArguments("numbers must be finite")
        if isinstance(each, str) and any("\ud800" <= character <= "\udfff" for character in each):
            raise InvalidArguments("the arguments hold half of a character (a lone surrogate)")


def walk(value: Any) -> Iterator[tuple[Any, int]]:
    """Every value and name in it, and how deep it lies."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        yield each, depth
        if isinstance(each, dict):
            waiting.extend((name, depth) for name in each)
            waiting.extend((inner, depth + isinstance(inner, dict | list)) for inner in each.values())
        elif isinstance(each, list):
            waiting.extend((inner, depth + isinstance(inner, dict | list)) for inner in each)


def _coerced(value: Any, wanted: str) -> Any:
    """The value as one of the wanted type. `bool` is an `int` to Python, not here. Raises `_TypeMismatch`."""
    match wanted, value:
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
    """A value's type, in words."""
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
