"""The schemas that have a place of their own on the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from api.reference.components import Section, field_table, shape, titled
from api.reference.html import Html, anchor, lined, tag, together
from api.reference.markdown import prose
from api.reference.openapi_reader import Contract, Part
from api.reference.schema_fields import fields


def objects(contract: Contract) -> Section | None:
    """What responses name, then what no operation shows, as the body of a webhook."""
    named: dict[str, None] = {}
    shown: set[str] = set()
    for operation in contract.operations:
        for response in operation.responses:
            named |= dict.fromkeys(_linked(response.content.schema) if response.content else ())
        shown |= _within(contract, operation.content.schema) if operation.content else set()
    for name in named:
        shown |= _within(contract, _reference(name))
    names = [*named, *(each for each in contract.components("schemas") if each not in shown)]
    if not names:
        return None
    entries = [(f"schema-{anchor(each)}", together(each)) for each in names]
    return Section("objects", "Objects", lined(_object(contract, each) for each in names), entries)


def _reference(name: str) -> Part:
    return {"$ref": f"#/components/schemas/{name}"}


def _linked(part: Part) -> Iterator[str]:
    """The components that `shape` links to."""
    if "$ref" in part:
        yield part["$ref"].rpartition("/")[2]
        return
    inner = part.get("allOf") or part.get("properties", {}).values() or [part.get("items", {})]
    for each in inner if part else ():
        yield from _linked(each)


def _within(contract: Contract, part: Part) -> set[str]:
    """The components that a schema is made of: a list of its fields shows them all."""
    found: set[str] = set()
    waiting: list[Any] = [part]
    while waiting:
        match waiting.pop():
            case {"$ref": str(reference)} as each:
                if reference not in found:
                    found.add(reference)
                    waiting.append(contract.resolved(each))
            case dict() as each:
                waiting.extend(each.values())
            case list() as each:
                waiting.extend(each)
    return {each.rpartition("/")[2] for each in found}


def _object(contract: Contract, name: str) -> Html:
    part = _reference(name)
    schema = contract.schema(part)
    found, place = list(fields(contract, part)), f"schema-{anchor(name)}"
    table = field_table(contract, found, "response", f"Fields: {name}")
    return tag(
        "article",
        titled("h3", name, place),
        prose(schema.facts.get("description")),
        table if found else tag("p", shape(contract, schema.facts)),
        class_="object",
        id=place,
        aria_labelledby=f"{place}-title",
    )
