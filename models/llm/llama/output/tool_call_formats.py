"""The formats in which models write tool calls: each is parsed to the tool's name and its arguments as JSON."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Tools = Mapping[str, Mapping[str, Any]]
"""The parameters (JSON Schema) of each tool that there is, by its name."""
Call = tuple[str, str]
"""Name and arguments."""
_FENCE: Final = re.compile(r"^\s*```(?:json|python|tool_code|tool_call)?(.*?)(?:```\s*)?$", re.DOTALL)
_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|$)", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([^>]+)>\n?(.*?)\n?(?:</parameter>|$)", re.DOTALL)
_PAIR: Final = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_JSON: Final = re.compile(r"\{|\[(?!(?:ARGS|CALL_ID|TOOL_CALLS)\])")
_NAME_BEFORE: Final = re.compile(
    r"(?<![\w-])(?:functions?\.)?([\w-]++)(?::\d+)?(?:\[CALL_ID\][^\[]*+)?(?:```json|\[ARGS\]|\W)*+$"
)
"""No two ways to the same end: of a long row of dashes it would try them all."""
_LONGEST_BEFORE: Final = 500
"""Characters: a name, and the marks behind it."""
_MARK: Final = re.compile(r"<[|\uff5c][^<>]*>")
_DEEPEST: Final = 40
"""Brackets within brackets; what is deeper is no call."""


def calls_in(text: str, tools: Tools) -> list[Call]:
    """All calls that a piece of text is made of, [] when there is none, or one of them is broken."""
    if (fenced := _FENCE.match(text)) is not None:
        text = fenced[1].strip()
    for shape in (_functions, _pairs, _json, _python):
        if calls := shape(text, tools):
            return calls
    return []


def call_of(value: Any, tools: Tools) -> Call | None:
    """The call that a JSON value is, in one of the forms in use. Of a tool that there is not it has arguments."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in ("name", "function", "tool_name", "tool") if key in value), None)
    given = [value[key] for key in ("arguments", "parameters", "args") if key in value]
    if not isinstance(name, str) or not name or not (given or name in tools):
        return None
    arguments: Any = given[0] if given else {}
    return name, arguments if isinstance(arguments, str) else _written(arguments)


def python_names(tools: Tools) -> re.Pattern[str]:
    """Matches the beginning of an answer that is a call as Python writes it."""
    names = "|".join(map(re.escape, tools)) or r"(?!)"
    return re.compile(rf"\s*\[?\s*(?:{names})\s*\(")


def _functions(text: str, tools: Tools) -> list[Call]:
    """`<function=name><parameter=key>value</parameter></function>`, or JSON in the place of the parameters."""
    calls = []
    for name, body in _FUNCTION.findall(text):
        if body.lstrip().startswith("{"):
            values = [value for _, value in _values(body)]
            if len(values) != 1:
                return []
            calls.append((name, _written(values[0])))
        else:
            calls.append((name, _typed(name, _PARAMETER.findall(body), tools)))
    return calls


def _pairs(text: str, tools: Tools) -> list[Call]:
    """The name, then pairs of `<arg_key>` and `<arg_value>`."""
    name, _, rest = text.strip().partition("<arg_key>")
    name = name.strip()
    if name in tools and (rest or name == text.strip()):
        return [(name, _typed(name, _PAIR.findall(text), tools))]
    return []


def _json(text: str, tools: Tools) -> list[Call]:
    """JSON that tells name and arguments, or arguments behind a name."""
    calls: list[Call] = []
    for before, value in _values(text):
        for each in value if isinstance(value, list) else [value]:
            named = _NAME_BEFORE.search(_MARK.sub("", before)[-_LONGEST_BEFORE:]) if isinstance(each, dict) else None
            name = "" if named is None else named[1].removeprefix("function")
            name = named[1] if named is not None and named[1] in tools else name
            if name in tools:
                calls.append((name, _written(each)))
            elif (call := call_of(each, tools)) is not None:
                calls.append(call)
    return calls


def _python(text: str, _tools: Tools) -> list[Call]:
    """`[name(key=value)]`, with nothing but literals as values."""
    if text.count("(") + text.count("[") + text.count("{") > _DEEPEST:
        return []
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return [_python_call(node) for node in (tree.elts if isinstance(tree, ast.List) else [tree])]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):  # `...` is a literal, and no JSON
        return []


def _python_call(node: ast.expr) -> Call:
    """Raises `ValueError` when it is none."""
    if not isinstance(node, ast.Call):
        raise ValueError("no call")
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr == "call":
        function = function.value
    if not isinstance(function, ast.Name) or node.args:
        raise ValueError("no name")
    return function.id, _written({key.arg: ast.literal_eval(key.value) for key in node.keywords if key.arg})


def _typed(name: str, pairs: list[tuple[str, str]], tools: Tools) -> str:
    """Values that were written as plain text, as the tool's parameters want them."""
    properties = tools.get(name, {}).get("properties", {})
    arguments = {}
    for key, text in pairs:
        schema = properties.get(key.strip(), {}) if isinstance(properties, Mapping) else {}
        arguments[key.strip()] = (
            text if isinstance(schema, Mapping) and schema.get("type") == "string" else _plain(text)
        )
    return _written(arguments)


def _plain(text: str) -> Any:
    """The JSON value that a text is, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _values(text: str) -> Iterator[tuple[str, Any]]:
    """The JSON values in a text, each with what stands before it; none at all when one of them is broken."""
    decoder, values, place = json.JSONDecoder(strict=False), [], 0
    while (found := _JSON.search(text, place)) is not None:
        try:
            value, end = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            return iter(())
        values.append((text[place : found.start()], value))
        place = end
    return iter(values)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
