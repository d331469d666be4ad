"""What the page's parts are built of: headings that link to themselves, tables, code, schemas in one line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from api.reference.examples import Side, told_samples
from api.reference.html import Html, anchor, code, lined, tag, together
from api.reference.markdown import line
from api.reference.openapi_reader import Contract, Part, Response
from api.reference.schema_fields import Field, bounds, literal, type_name

FLAGS: Final = {
    "required": "required",
    "writeOnly": "write-only",
    "readOnly": "read-only",
    "deprecated": "deprecated",
    "mayBeAbsent": "not always there",
}


@dataclass(frozen=True)
class Section:
    """A part of the page with an anchor. `entries` are the anchors in it that the contents list, with their labels."""

    name: str
    title: str
    body: Html
    entries: list[tuple[str, Html]] = field(default_factory=list)


def titled(heading: str, title: str, name: str) -> Html:
    """A heading with a link to itself."""
    return tag(
        "div",
        tag(heading, title, id=f"{name}-title"),
        tag("a", "#", href=f"#{name}", aria_label=f"Link to {title}", class_="here"),
        class_="titled",
    )


def method_badge(method: str) -> Html:
    """GET, POST and so on, each in its colour."""
    return tag("span", method.upper(), class_=f"method {method}")


def field_table(contract: Contract, found: Iterable[Field], side: Side, label: str) -> Html:
    """Fields with what is known of each. In a response a field is there unless the table says otherwise."""
    rows = []
    for each in found:
        facts = contract.schema(each.part).facts
        within = together(tag("span", each.within), tag("wbr")) if each.within else None
        rows.append(
            [
                together(tag("code", within, each.name), flags(facts, each.required, side)),
                type_cell(contract, each.part),
                default_cell(facts) if side == "request" else together(),
                line(facts.get("description")),
            ]
        )
    return table(label, ["Field", "Type", "Default", "Description"], rows)


def table(label: str, titles: list[str], rows: list[list[Html]]) -> Html:
    """A table whose first cells head their rows; a column without content is left out. The roles keep it a table
    where a narrow screen lays it out as a list."""
    kept = [number for number, _ in enumerate(titles) if number == 0 or any(row[number] for row in rows)]
    head = [tag("th", titles[number], scope="col", role="columnheader") for number in kept]
    body = []
    for row in rows:
        cells = [tag("td", row[number], role="cell", data_label=titles[number]) for number in kept[1:]]
        body.append(tag("tr", tag("th", row[0], scope="row", role="rowheader"), *cells, role="row"))
    return tag(
        "table",
        tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
        tag("tbody", lined(body), role="rowgroup"),
        role="table",
        aria_label=label,
    )


def block(content: Html | str, label: str) -> Html:
    """Code that can be scrolled, with the keyboard too."""
    return tag("pre", tag("code", content), tabindex="0", role="region", aria_label=label)


def shape(contract: Contract, part: Part) -> Html:
    """A schema in one line, as `{ data: [Agent] }`; what has a name is a link to it."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return tag("a", name, href=f"#schema-{anchor(name)}")
    if "allOf" in part:
        return lined((shape(contract, each) for each in part["allOf"]), " & ")
    schema = contract.schema(part)
    if schema.properties:
        inside = [together(f"{name}: ", shape(contract, each)) for name, each in schema.properties.items()]
        return together("{ ", lined(inside, ", "), " }")
    if "items" in schema.facts:
        return together("[", shape(contract, schema.facts["items"]), "]")
    return together(type_name(contract, part))


def meaning(contract: Contract, response: Response) -> Html:
    """What a response says, and the bodies that the document gives as examples of an error."""
    told = [] if response.good or response.content is None else told_samples(contract, response.content.facts)
    return together(
        tag("span", line(response.description), class_="meaning"),
        *(tag("code", literal(each), class_="body") for each in told),
    )


def flags(facts: Part, required: bool, side: Side = "request") -> Html:
    """What is to be known of a name at once."""
    told = [name for name in ("writeOnly", "readOnly", "deprecated") if facts.get(name)]
    if required and side == "request":
        told.insert(0, "required")
    if not required and side == "response":
        told.append("mayBeAbsent")
    return together(*(tag("span", FLAGS[each], class_=f"flag {each}") for each in told))


def type_cell(contract: Contract, part: Part) -> Html:
    """A type with its bounds."""
    notes = [tag("span", each, class_="bound") for each in bounds(contract, part)]
    return together(tag("span", type_name(contract, part), class_="type"), *notes)


def default_cell(facts: Part) -> Html:
    """A default as it is written in JSON, or nothing."""
    return code(literal(facts["default"])) if "default" in facts else together()
