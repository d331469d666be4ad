"""Converts JSON Schema to llama.cpp's grammars (GBNF), so that a model writes only what a tool takes.

A grammar is never wider than JSON, and bounded: a small model cannot get lost in an endless string. What it does not
know of a schema (`$ref`, `pattern`, bounds of numbers) it leaves to who checks the arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from models.llm.llama.output.sampling import Grammar
from models.protocols import ToolDefinition

LONGEST_STRING: Final = 400
MOST_ITEMS: Final = 50
OPEN, CLOSE = "<tool_call>", "</tool_call>"

_DEPTH: Final = 3
"""How deep values are nested of which a schema says nothing."""
_BASE: Final = {
    # No \\u: half of a surrogate pair is JSON, and no text.
    "char": r'[^"\\\x7F\x00-\x1F] | "\\" ["\\/nt]',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,14})',
    "number": 'integer ("." [0-9]{1,15})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "gap": '" "?',
    "line": '"\\n"?',
}


def json_grammar(schema: Mapping[str, Any], brevity: int = 1) -> Grammar:
    """An answer that is JSON of this schema and nothing else. Strings and lists whose length it leaves open are
    `brevity` times as short."""
    rules = _Rules(brevity)
    return Grammar(rules.written(rules.of(schema)))


def tagged_calls(tools: Sequence[ToolDefinition], *, forced: bool = False) -> Grammar:
    """Calls of these tools between tags, as Qwen and Hermes write them: `forced`, nothing but calls; else words as the
    model likes, and calls as they must be."""
    rules = _Rules(tagged=True)
    call = rules.add(f'line {_calls(rules, tools, "arguments")} line "{CLOSE}"')
    opened = f'line "{OPEN}" {call}'
    root = f"{call} ({opened}){{0,3}} line"
    return Grammar(rules.written(f'"{OPEN}" {root}' if forced else root), b"" if forced else OPEN.encode())


def bare_call(tools: Sequence[ToolDefinition]) -> Grammar:
    """One call and nothing else, as Llama 3 writes it."""
    rules = _Rules()
    return Grammar(rules.written(_calls(rules, tools, "parameters")))


def _calls(rules: _Rules, tools: Sequence[ToolDefinition], arguments: str) -> str:
    """A call of any of the tools, without what is around it."""
    calls = []
    for tool in tools:
        head = f'{{"name": {json.dumps(tool.name)}, "{arguments}": '
        calls.append(f'{_literal(head)} {rules.of({"type": "object", **tool.parameters})} "}}"')
    return f"({' | '.join(calls)})"


class _Rules:
    """The rules of one grammar."""

    def __init__(self, brevity: int = 1, *, tagged: bool = False) -> None:
        """`tagged`: no text may hold what could be the closing tag."""
        self._longest, self._most = LONGEST_STRING // brevity, MOST_ITEMS // brevity
        self._rules = {**_BASE, "string": rf'"\"" char{{0,{self._longest}}} "\""', **_any(self._most)}
        if tagged:
            self._rules["char"] = _BASE["char"].replace('[^"', '[^<"', 1)

    def add(self, body: str) -> str:
        """A new rule's name."""
        name = f"rule-{len(self._rules)}"
        self._rules[name] = body
        return name

    def written(self, root: str) -> str:
        """All of them, and `root` as the first."""
        return "\n".join(f"{name} ::= {body}" for name, body in {"root": root, **self._rules}.items()) + "\n"

    def of(self, schema: object) -> str:
        """The name of the rule for values of a schema; any JSON where it does not say."""
        if not isinstance(schema, Mapping):
            return "value"
        if choices := self._choices(schema):
            return self.add(" | ".join(choices))
        match kind := schema.get("type"):
            case "object" if schema.get("properties"):
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "string" if "maxLength" in schema or "minLength" in schema:
                shortest = min(_count(schema, "minLength", 0), LONGEST_STRING)
                longest = min(_count(schema, "maxLength", LONGEST_STRING), max(self._longest, shortest))
                shortest = min(shortest, longest)
                return self.add(rf'"\"" char{{{shortest},{longest}}} "\""')
            case "integer" | "number" | "boolean" | "null" | "string" | "object":
                return str(kind)
        return "value"

    def _choices(self, schema: Mapping[str, Any]) -> list[str]:
        """What a value may be one of, where the schema says so."""
        if "enum" in schema or "const" in schema:
            values = schema.get("enum") or [schema.get("const")]
            return [_literal(json.dumps(value, ensure_ascii=False)) for value in values]
        if isinstance(schema.get("type"), list):
            return [self.of({**schema, "type": each}) for each in schema["type"]]
        return [self.of(each) for key in ("anyOf", "oneOf") for each in schema.get(key, ())]

    def _object(self, schema: Mapping[str, Any]) -> str:
        """The properties in their order, those that are required first. There are no others."""
        properties: Mapping[str, Any] = schema["properties"]
        required = [name for name in properties if name in schema.get("required", ())]
        optional = [name for name in properties if name not in required]
        pairs = {
            name: self.add(f"{_literal(json.dumps(name, ensure_ascii=False) + ':')} gap {self.of(properties[name])}")
            for name in properties
        }
        separator = ' "," gap '
        maybe = [f'("," gap {pairs[name]})?' for name in optional]
        if required:
            inside = " ".join([separator.join(pairs[name] for name in required), *maybe])
        else:
            starts = [" ".join([pairs[name], *maybe[place + 1 :]]) for place, name in enumerate(optional)]
            inside = f"({' | '.join(starts)})?"
        return self.add(f'"{{" {inside} "}}"')

    def _array(self, schema: Mapping[str, Any]) -> str:
        item = self.of(schema.get("items"))
        least = min(_count(schema, "minItems", 0), MOST_ITEMS)
        most = min(_count(schema, "maxItems", MOST_ITEMS), max(self._most, least))
        least = min(least, most)
        if most == 0:
            return self.add('"[]"')
        inside = f'{item} ("," gap {item}){{{max(least - 1, 0)},{most - 1}}}'
        return self.add(f'"[" {inside} "]"' if least else f'"[" ({inside})? "]"')


def _any(most: int) -> dict[str, str]:
    """The rules for any JSON, `_DEPTH` deep."""
    rules = {"scalar": "string | number | boolean | null", f"value-{_DEPTH}": "scalar"}
    for depth in range(_DEPTH):
        end, inner = f"-{depth}" if depth else "", f"value-{depth + 1}"
        rules[f"value{end}"] = f"object{end} | array{end} | scalar"
        rules[f"object{end}"] = f'"{{" (string ":" gap {inner} ("," gap string ":" gap {inner}){{0,{most}}})? "}}"'
        rules[f"array{end}"] = f'"[" ({inner} ("," gap {inner}){{0,{most}}})? "]"'
    return rules


def _count(schema: Mapping[str, Any], key: str, otherwise: int) -> int:
    value = schema.get(key, otherwise)
    return max(int(value), 0) if isinstance(value, int | float) else otherwise


def _literal(text: str) -> str:
    """A text as a grammar writes it."""
    escaped = "".join(f"\\x{ord(each):02X}" if ord(each) < 32 or each in '"\\' else each for each in text)
    return f'"{escaped}"'
