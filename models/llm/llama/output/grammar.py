"""Converts JSON Schema to llama.cpp's grammars (GBNF), which constrain a model to the arguments that a tool accepts.

A grammar accepts JSON only, with bounded lengths, so that a small model cannot generate an endless string. Keywords
that it does not support (`$ref`, `pattern`, bounds of numbers) are left to the validation of the arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from models.llm.llama.output.sampling import Grammar
from models.protocols import ToolDefinition

MAX_STRING_CHARACTERS: Final = 400
MAX_ITEMS: Final = 50
OPEN, CLOSE = "<tool_call>", "</tool_call>"

_MAX_DEPTH: Final = 3
"""Nesting depth of values without a schema."""
_BASE_RULES: Final = {
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
    """The grammar of a JSON value by `schema`. Strings and lists without a length are limited to 1/`brevity` of the
    default."""
    rules = _Rules(brevity)
    return Grammar(rules.to_gbnf(rules.rule_for(schema)))


def tagged_call_grammar(tools: Sequence[ToolDefinition], *, forced: bool = False) -> Grammar:
    """The grammar of tool calls between tags, as Qwen and Hermes write them. `forced`: the response is calls only; else
    free text, and after the opening tag a valid call."""
    rules = _Rules(tagged=True)
    call = rules.add(f'line {_call_rule(rules, tools, "arguments")} line "{CLOSE}"')
    more_calls = f'line "{OPEN}" {call}'
    root = f"{call} ({more_calls}){{0,3}} line"
    return Grammar(rules.to_gbnf(f'"{OPEN}" {root}' if forced else root), b"" if forced else OPEN.encode())


def bare_call_grammar(tools: Sequence[ToolDefinition]) -> Grammar:
    """The grammar of one tool call without tags, as Llama 3 writes it."""
    rules = _Rules()
    return Grammar(rules.to_gbnf(_call_rule(rules, tools, "parameters")))


def _call_rule(rules: _Rules, tools: Sequence[ToolDefinition], arguments: str) -> str:
    """The rule body of a call of any of the tools, without tags."""
    calls = []
    for tool in tools:
        head = f'{{"name": {json.dumps(tool.name)}, "{arguments}": '
        calls.append(f'{_literal(head)} {rules.rule_for({"type": "object", **tool.parameters})} "}}"')
    return f"({' | '.join(calls)})"


class _Rules:
    """Builds the rules of one grammar."""

    def __init__(self, brevity: int = 1, *, tagged: bool = False) -> None:
        """`tagged`: strings must not hold `<`, which could begin the closing tag."""
        self._max_characters, self._max_items = MAX_STRING_CHARACTERS // brevity, MAX_ITEMS // brevity
        self._rules = {
            **_BASE_RULES,
            "string": rf'"\"" char{{0,{self._max_characters}}} "\""',
            **_any_json_rules(self._max_items),
        }
        if tagged:
            self._rules["char"] = _BASE_RULES["char"].replace('[^"', '[^<"', 1)

    def add(self, body: str) -> str:
        """Add a rule. Returns its name."""
        name = f"rule-{len(self._rules)}"
        self._rules[name] = body
        return name

    def to_gbnf(self, root: str) -> str:
        """The grammar's text, with the rule `root` first."""
        return "\n".join(f"{name} ::= {body}" for name, body in {"root": root, **self._rules}.items()) + "\n"

    def rule_for(self, schema: object) -> str:
        """The name of the rule for values of a schema; of any JSON for an unsupported schema."""
        if not isinstance(schema, Mapping):
            return "value"
        if choices := self._alternatives(schema):
            return self.add(" | ".join(choices))
        match kind := schema.get("type"):
            case "object" if schema.get("properties"):
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "string" if "maxLength" in schema or "minLength" in schema:
                shortest = min(_count(schema, "minLength", 0), MAX_STRING_CHARACTERS)
                longest = min(_count(schema, "maxLength", MAX_STRING_CHARACTERS), max(self._max_characters, shortest))
                shortest = min(shortest, longest)
                return self.add(rf'"\"" char{{{shortest},{longest}}} "\""')
            case "integer" | "number" | "boolean" | "null" | "string" | "object":
                return str(kind)
        return "value"

    def _alternatives(self, schema: Mapping[str, Any]) -> list[str]:
        """The alternatives of an `enum`, `const`, `anyOf`, `oneOf` or list of types."""
        if "enum" in schema or "const" in schema:
            values = schema.get("enum") or [schema.get("const")]
            return [_literal(json.dumps(value, ensure_ascii=False)) for value in values]
        if isinstance(schema.get("type"), list):
            return [self.rule_for({**schema, "type": item_schema}) for item_schema in schema["type"]]
        return [self.rule_for(item_schema) for key in ("anyOf", "oneOf") for item_schema in schema.get(key, ())]

    def _object(self, schema: Mapping[str, Any]) -> str:
        """The rule of an object: required properties first, in order; no additional ones."""
        properties: Mapping[str, Any] = schema["properties"]
        required = [name for name in properties if name in schema.get("required", ())]
        optional = [name for name in properties if name not in required]
        pairs = {
            name: self.add(
                f"{_literal(json.dumps(name, ensure_ascii=False) + ':')} gap {self.rule_for(properties[name])}"
            )
            for name in properties
        }
        separator = ' "," gap '
        optional_pairs = [f'("," gap {pairs[name]})?' for name in optional]
        if required:
            body = " ".join([separator.join(pairs[name] for name in required), *optional_pairs])
        else:
            starts = [" ".join([pairs[name], *optional_pairs[place + 1 :]]) for place, name in enumerate(optional)]
            body = f"({' | '.join(starts)})?"
        return self.add(f'"{{" {body} "}}"')

    def _array(self, schema: Mapping[str, Any]) -> str:
        item = self.rule_for(schema.get("items"))
        min_items = min(_count(schema, "minItems", 0), MAX_ITEMS)
        max_items = min(_count(schema, "maxItems", MAX_ITEMS), max(self._max_items, min_items))
        min_items = min(min_items, max_items)
        if max_items == 0:
            return self.add('"[]"')
        body = f'{item} ("," gap {item}){{{max(min_items - 1, 0)},{max_items - 1}}}'
        return self.add(f'"[" {body} "]"' if min_items else f'"[" ({body})? "]"')


def _any_json_rules(max_items: int) -> dict[str, str]:
    """The rules of any JSON value, `_MAX_DEPTH` deep."""
    rules = {"scalar": "string | number | boolean | null", f"value-{_MAX_DEPTH}": "scalar"}
    for depth in range(_MAX_DEPTH):
        end, inner = f"-{depth}" if depth else "", f"value-{depth + 1}"
        rules[f"value{end}"] = f"object{end} | array{end} | scalar"
        rules[f"object{end}"] = f'"{{" (string ":" gap {inner} ("," gap string ":" gap {inner}){{0,{max_items}}})? "}}"'
        rules[f"array{end}"] = f'"[" ({inner} ("," gap {inner}){{0,{max_items}}})? "]"'
    return rules


def _count(schema: Mapping[str, Any], key: str, default: int) -> int:
    value = schema.get(key, default)
    return max(int(value), 0) if isinstance(value, int | float) else default


def _literal(text: str) -> str:
    """A text as a GBNF literal."""
    escaped = "".join(
        f"\\x{ord(item_schema):02X}" if ord(item_schema) < 32 or item_schema in '"\\' else item_schema
        for item_schema in text
    )
    return f'"{escaped}"'
