"""What a language model wrote for a tool: JSON, which becomes values that fit the tool's definition, or words that say
what is wrong with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from config.errors import TrunklineError

MOST_BYTES: Final = 32 * 1024
"""Of the JSON, in UTF-8."""
DEEPEST: Final = 16
"""Objects and arrays inside one another."""
MOST_TOLD: Final = 5
"""Problems that are told at once."""
LONGEST_NAME: Final = 64
"""Characters that are told of a name that the model has made up."""
EXACT: Final = 2**53
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


class BadArguments(TrunklineError):
    """They do not fit; the message tells the model what to do about it."""


class _Misfit(Exception):
    """The value is of another type."""


def arguments_of(text: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values in `text` by the JSON Schema `parameters`, of which `properties`, their `type` and `required` count.
    Nothing (an empty text) is an empty object; null stands for a parameter that is not given. Habits of models that
    lose nothing are let through: "5" and 5.0 for an integer, "2.5" for a number, "true" for a boolean, 5 for a string.
    Raises `BadArguments`."""
    given = {name: value for name, value in _object_in(text).items() if value is not None}
    declared: Mapping[str, Any] = parameters.get("properties", {})
    fitting: dict[str, Any] = {}
    problems: list[str] = []
    for name in parameters.get("required", ()):
        if name not in given:
            problems.append(f"parameter `{name}` is required")
    for name, value in given.items():
        if name not in declared:
            problems.append(f"there is no parameter `{name[:LONGEST_NAME]}`, {_there_are(declared)}")
            continue
        wanted = declared[name]["type"]
        try:
            fitting[name] = _fitted(value, wanted)
        except _Misfit:
            problems.append(f"parameter `{name}` must be {_WITH_ARTICLE[wanted]}, not {_told(value)}")
    if problems:
        raise BadArguments("; ".join(problems[:MOST_TOLD]))
    return fitting


def _there_are(declared: Mapping[str, Any]) -> str:
    return f"only {', '.join(f'`{name}`' for name in declared)}" if declared else "the tool takes none"


def _object_in(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    if len(text) > MOST_BYTES or len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise BadArguments(f"the arguments are longer than {MOST_BYTES // 1024} KiB")
    try:
        value = json.loads(text)
    except RecursionError:
        raise BadArguments("the arguments are nested too deeply") from None
    except ValueError:
        raise BadArguments("the arguments are no valid JSON; write one JSON object") from None
    if not isinstance(value, dict):
        raise BadArguments(f"the arguments must be one JSON object, not {_told(value)}")
    _check_all(value)
    return value


def _check_all(value: dict[str, Any]) -> None:
    """Everything in it can be written as JSON again, in bounds."""
    for each, depth in walk(value):
        if depth > DEEPEST:
            raise BadArguments("the arguments are nested too deeply")
        if isinstance(each, float) and not math.isfinite(each):
            raise BadArguments("numbers must be finite")
        if isinstance(each, str) and any("\ud800" <= character <= "\udfff" for character in each):
            raise BadArguments("the arguments hold half of a character (a lone surrogate)")


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


def _fitted(value: Any, wanted: str) -> Any:
    """The value as one of the wanted type. `bool` is an `int` to Python, not here. Raises `_Misfit`."""
    match wanted, value:
        case ("boolean", bool()) | ("object", dict()) | ("array", list()) | ("string", str()):
            return value
        case "boolean", str() if value.lower() in ("true", "false"):
            return value.lower() == "true"
        case _, bool():
            raise _Misfit
        case ("integer" | "number", int()) | ("number", float()):
            return value
        case "integer", float() if value.is_integer() and abs(value) <= EXACT:
            return int(value)
        case "integer", str() if _INTEGER.fullmatch(value):
            return int(value)
        case "number", str() if _NUMBER.fullmatch(value):
            return json.loads(value)
        case "string", int():
            return str(value)
        case _:
            raise _Misfit


def _told(value: Any) -> str:
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
