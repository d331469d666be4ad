"""Parses the formats of tool calls in model output to a tool's name and its arguments as JSON."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Tools = Mapping[str, Mapping[str, Any]]
"""JSON Schema of the parameters of each tool, by name."""
Call = tuple[str, str]
"""Name, and arguments as JSON."""
_CODE_FENCE: Final = re.compile(r"^\s*```(?:json|python|tool_code|tool_call)?(.*?)(?:```\s*)?$", re.DOTALL)
_FUNCTION_TAG: Final = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|$)", re.DOTALL)
_PARAMETER_TAG: Final = re.compile(r"<parameter=([^>]+)>\n?(.*?)\n?(?:</parameter>|$)", re.DOTALL)
_ARGUMENT_TAGS: Final = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_JSON_START: Final = re.compile(r"\{|\[(?!(?:ARGS|CALL_ID|TOOL_CALLS)\])")
_NAME_BEFORE: Final = re.compile(
    r"(?<![\w-])(?:functions?\.)?([\w-]++)(?::\d+)?(?:\[CALL_ID\][^\[]*+)?(?:```json|\[ARGS\]|\W)*+$"
)
"""Possessive quantifiers, because a long row of dashes would make it backtrack."""
_MAX_NAME_PREFIX: Final = 500
"""Characters of a name and the tags after it."""
_SPECIAL_TOKEN: Final = re.compile(r"<[|\uff5c][^<>]*>")
_MAX_BRACKETS: Final = 40
"""Nested brackets of a call, at most."""


def parse_calls(text: str, tools: Tools) -> list[Call]:
    """The calls in a text; [] if there is none or one is malformed."""
    if (fence := _CODE_FENCE.match(text)) is not None:
        text = fence[1].strip()
    for parse in (_parse_function_tags, _parse_argument_tags, _parse_json, _parse_python):
        if calls := parse(text, tools):
            return calls
    return []


def parse_call(value: Any, tools: Tools) -> Call | None:
    """The call in a JSON value, None if it is none. A call of an unknown tool must have arguments."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in ("name", "function", "tool_name", "tool") if key in value), None)
    arguments_given = [value[key] for key in ("arguments", "parameters", "args") if key in value]
    if not isinstance(name, str) or not name or not (arguments_given or name in tools):
        return None
    arguments: Any = arguments_given[0] if arguments_given else {}
    return name, arguments if isinstance(arguments, str) else _to_json(arguments)


def python_call_pattern(tools: Tools) -> re.Pattern[str]:
    """Matches the beginning of a response that is a Python call of a tool."""
    names = "|".join(map(re.escape, tools)) or r"(?!)"
    return re.compile(rf"\s*\[?\s*(?:{names})\s*\(")


def _parse_function_tags(text: str, tools: Tools) -> list[Call]:
    """`<function=name><parameter=key>value</parameter></function>`, or JSON instead of the parameters."""
    calls = []
    for name, body in _FUNCTION_TAG.findall(text):
        if body.lstrip().startswith("{"):
            values = [value for _, value in _json_values(body)]
            if len(values) != 1:
                return []
            calls.append((name, _to_json(values[0])))
        else:
            calls.append((name, _typed_arguments(name, _PARAMETER_TAG.findall(body), tools)))
    return calls


def _parse_argument_tags(text: str, tools: Tools) -> list[Call]:
    """A name, then pairs of `<arg_key>` and `<arg_value>`."""
    name, _, rest = text.strip().partition("<arg_key>")
    name = name.strip()
    if name in tools and (rest or name == text.strip()):
        return [(name, _typed_arguments(name, _ARGUMENT_TAGS.findall(text), tools))]
    return []


def _parse_json(text: str, tools: Tools) -> list[Call]:
    """JSON of name and arguments, or JSON arguments after a name."""
    calls: list[Call] = []
    for prefix, value in _json_values(text):
        for candidate in value if isinstance(value, list) else [value]:
            name_match = (
                _NAME_BEFORE.search(_SPECIAL_TOKEN.sub("", prefix)[-_MAX_NAME_PREFIX:])
                if isinstance(candidate, dict)
                else None
            )
            name = "" if name_match is None else name_match[1].removeprefix("function")
            name = name_match[1] if name_match is not None and name_match[1] in tools else name
            if name in tools:
                calls.append((name, _to_json(candidate)))
            elif (call := parse_call(candidate, tools)) is not None:
                calls.append(call)
    return calls


def _parse_python(text: str, _tools: Tools) -> list[Call]:
    """`[name(key=value)]`, with literals as values."""
    if text.count("(") + text.count("[") + text.count("{") > _MAX_BRACKETS:
        return []
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return [_parse_python_call(node) for node in (tree.elts if isinstance(tree, ast.List) else [tree])]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):  # `...` is a literal, and no JSON
        return []


def _parse_python_call(node: ast.expr) -> Call:
    """Raises `ValueError` if the node is no call."""
    if not isinstance(node, ast.Call):
        raise ValueError("no call")
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr == "call":
        function = function.value
    if not isinstance(function, ast.Name) or node.args:
        raise ValueError("no name")
    return function.id, _to_json({key.arg: ast.literal_eval(key.value) for key in node.keywords if key.arg})


def _typed_arguments(name: str, pairs: list[tuple[str, str]], tools: Tools) -> str:
    """JSON arguments from plain text values, by the types of the tool's parameters."""
    properties = tools.get(name, {}).get("properties", {})
    arguments = {}
    for key, text in pairs:
        schema = properties.get(key.strip(), {}) if isinstance(properties, Mapping) else {}
        arguments[key.strip()] = (
            text if isinstance(schema, Mapping) and schema.get("type") == "string" else _json_or_text(text)
        )
    return _to_json(arguments)


def _json_or_text(text: str) -> Any:
    """The JSON value of a text, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json_values(text: str) -> Iterator[tuple[str, Any]]:
    """The JSON values in a text, each with the text before it; none if one is malformed."""
    decoder, values, position = json.JSONDecoder(strict=False), [], 0
    while (match := _JSON_START.search(text, position)) is not None:
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            return iter(())
        values.append((text[position : match.start()], value))
        position = end
    return iter(values)


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
