"""Validation of a language model's output for a call analysis. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

MAX_SUMMARY_LENGTH: Final = 2000
"""Characters; more is cut."""
MAX_VALUE_LENGTH: Final = 1000
_NULL_TEXTS: Final = frozenset({"", "null", "none", "n/a", "unknown", "not said", "not specified", "not mentioned"})
"""Texts that models write for a value that was not said."""


class InvalidModelOutput(Exception):
    """The model's output does not match the request."""


def parse_object(text: str) -> dict[str, Any]:
    """Returns the JSON object in the output. Raises `InvalidModelOutput`."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidModelOutput("the answer is no JSON") from error
    if not isinstance(answer, dict):
        raise InvalidModelOutput("the answer is no JSON object")
    return answer


def parse_summary(text: str) -> str:
    """Returns the summary in the output: plain text on one line, bounded. Raises `InvalidModelOutput`."""
    summary = parse_object(text).get("summary")
    if not isinstance(summary, str) or not (plain := _plain(summary)):
        raise InvalidModelOutput("the answer holds no summary")
    return truncated(plain, MAX_SUMMARY_LENGTH)


def parse_values(text: str, names: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values in the output by their `names`: exactly these, of their `kinds`, None if not said. Raises
    `InvalidModelOutput` for an unknown key, or a value of another kind."""
    answer = parse_object(text)
    if unknown := answer.keys() - names.keys():
        raise InvalidModelOutput(f"the answer holds {len(unknown)} keys that were not asked for")
    return {name: _checked(answer.get(key), kinds[key]) for key, name in names.items()}


def _checked(value: object, kind: str) -> str | float | bool | None:
    match kind, value:
        case _, None:
            return None
        case "boolean", bool():
            return value
        case "number", int() | float() if not isinstance(value, bool) and _is_finite(value):
            return value
        case "string", str():
            plain = truncated(_plain(value), MAX_VALUE_LENGTH)
            return None if plain.lower() in _NULL_TEXTS else plain
    raise InvalidModelOutput(f"a value is no {kind}")


def _is_finite(value: float) -> bool:
    """False also for integers that no float can hold."""
    try:
        return math.isfinite(value) and abs(value) < 1e300
    except OverflowError:
        return False


def _plain(text: str) -> str:
    """Returns the text without line breaks and characters that cannot be shown or stored."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(printable.split())


def truncated(text: str, max_length: int) -> str:
    """Returns at most `max_length` characters, cut between words if possible."""
    if len(text) <= max_length:
        return text
    head = text[: max_length - 1]
    return f"{head.rsplit(' ', 1)[0] if ' ' in head[max_length // 2 :] else head}…"


def merged(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Returns both: a later value replaces an earlier one unless it is None."""
    return {**earlier, **{name: value for name, value in later.items() if value is not None}}
