"""A schema as a list of its fields with dotted paths, and what is said of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from api.reference.html import Html, code, lined, together
from api.reference.openapi_reader import Contract, Part

TELLING: Final = frozenset({"uuid", "uri", "date", "date-time", "binary", "byte", "email"})
"""Formats that say what kind of text it is."""
STORED: Final = 2**63 - 1
"""What a database's integer holds at most: as good as no bound."""
READABLE: Final = 80
"""Characters of a pattern that people read; a longer one is for programs, and the description says it in words."""


@dataclass(frozen=True)
class Field:
    """A field: its name after the path of what it is in, as `transcript[].` and `role`."""

    within: str
    name: str
    part: Part
    required: bool


def fields(contract: Contract, part: Part, path: str = "", open_: frozenset[int] = frozenset()) -> Iterator[Field]:
    """All fields below a schema, depth first; of one object those first that must be there. A schema that holds
    itself is not entered again."""
    if contract.identity(part) in open_:
        return
    open_ |= {contract.identity(part)}
    schema = contract.schema(part)
    facts = schema.facts
    for each in (*facts.get("oneOf", ()), *facts.get("anyOf", ())):
        yield from fields(contract, each, path, open_)
    for name, each in sorted(schema.properties.items(), key=lambda pair: not schema.requires(pair[0])):
        yield Field(path, name, each, schema.requires(name))
        yield from fields(contract, each, f"{path}{name}.", open_)
    if isinstance(facts.get("items"), dict):
        yield from fields(contract, facts["items"], f"{path.removesuffix('.')}[].", open_)
    if isinstance(facts.get("additionalProperties"), dict):
        yield from fields(contract, facts["additionalProperties"], f"{path}*.", open_)


def type_name(contract: Contract, part: Part) -> str:
    """What kind of value it takes, as `array of uuid or null`."""
    kinds = dict.fromkeys(_kinds(contract, part, frozenset()))
    return " or ".join([*kinds, *(["null"] if contract.schema(part).facts.get("nullable") else [])])


def _kinds(contract: Contract, part: Part, open_: frozenset[int]) -> Iterator[str]:
    """One kind, or one for each variant."""
    schema, again = contract.schema(part), contract.identity(part) in open_
    facts, open_ = schema.facts, open_ | {contract.identity(part)}
    variants = (*facts.get("oneOf", ()), *facts.get("anyOf", ()))
    for each in () if again else variants:
        yield from _kinds(contract, each, open_)
    if variants:
        return
    if facts.get("type") == "array":
        items = " or ".join(() if again else dict.fromkeys(_kinds(contract, facts.get("items", {}), open_)))
        yield f"array of {items}" if items else "array"
    elif facts.get("type", "object") == "object":
        yield "object" if "type" in facts or schema.properties else "any JSON value"
    else:
        yield _plain_kind(facts)


def _plain_kind(facts: Part) -> str:
    """A type that holds no others, by its format where that says more."""
    kind, form = str(facts["type"]), facts.get("format")
    if form is None:
        return kind
    return str(form) if kind == "string" and form in TELLING else f"{kind} ({form})"


def bounds(contract: Contract, part: Part) -> list[Html]:
    """What a value must keep to, each in a few words."""
    facts = contract.schema(part).facts
    items = contract.schema(facts.get("items", {})).facts
    found = [
        _values(facts.get("enum") or items.get("enum") or []),
        _numbers(facts),
        _count(facts, "Length", "character", "characters"),
        _count(facts, "Items", "item", "items"),
        _count(facts, "Properties", "key", "keys"),
        together("no two alike") if facts.get("uniqueItems") else None,
        together("a multiple of ", code(literal(facts["multipleOf"]))) if "multipleOf" in facts else None,
        together("matches ", code(facts["pattern"])) if len(facts.get("pattern", "")) in range(1, READABLE) else None,
    ]
    return [each for each in found if each is not None]


def literal(value: Any) -> str:
    """A value as it is written in JSON."""
    return json.dumps(value, ensure_ascii=False)


def _values(allowed: list[Any]) -> Html | None:
    shown = [code(each if isinstance(each, str) else literal(each)) for each in allowed if each is not None]
    return lined(shown, " ") if shown else None


def _numbers(facts: Part) -> Html | None:
    low, high = facts.get("minimum"), facts.get("maximum")
    high = None if high == STORED else high
    over, under = facts.get("exclusiveMinimum") is True, facts.get("exclusiveMaximum") is True
    if low is not None and high is not None and not over and not under:
        return together(f"{literal(low)} to {literal(high)}")
    least = None if low is None else f"{'more than' if over else 'at least'} {literal(low)}"
    most = None if high is None else f"{'less than' if under else 'at most'} {literal(high)}"
    told = [each for each in (least, most) if each is not None]
    return together(", ".join(told)) if told else None


def _count(facts: Part, of: str, one: str, many: str) -> Html | None:
    low, high = facts.get(f"min{of}"), facts.get(f"max{of}")
    if low is None and high is None:
        return None
    if high is None:
        return together(f"at least {low} {one if low == 1 else many}")
    unit = one if high == 1 else many
    return together(f"{low} to {high} {unit}" if low else f"at most {high} {unit}")
