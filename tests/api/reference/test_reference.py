"""The reference page: complete against the document, well-formed, safe, and served like the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from openapi_schema_validator import OAS30Validator

from api.reference.examples import body_sample
from api.reference.openapi_reader import Contract
from api.reference.page import render, style
from api.routes import description
from tests.html_page import Page

DOCUMENT = json.loads(description())
OPERATIONS = [(path, method, each) for path, methods in DOCUMENT["paths"].items() for method, each in methods.items()]
HOSTILE = '</style></code><img src=x onerror=alert(1)><script>alert(1)</script>" onclick="alert(1)\' & `</code>`'


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render(DOCUMENT))


def _resolved(part: Any) -> Any:
    while "$ref" in part:
        found: Any = DOCUMENT
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        part = found
    return part


def _paths(part: Any, before: str = "") -> Iterator[str]:
    """Every field below a schema with its path, as a reader would count them."""
    schema = _resolved(part)
    for piece in schema.get("allOf", ()):
        yield from _paths(piece, before)
    for name, inner in schema.get("properties", {}).items():
        yield before + name
        yield from _paths(inner, f"{before}{name}.")
    if "items" in schema:
        yield from _paths(schema["items"], f"{before[:-1]}[].")


def _path(cell: str) -> str:
    """The path in a row's first cell: before the name stands, in a word of its own, what it is in."""
    first, *more = cell.split()
    return first + more[0] if first.endswith(".") else first


def test_every_operation_has_a_place_and_an_entry_in_the_contents(page: Page) -> None:
    places, links = page.all("id"), page.all("href")
    for path, method, operation in OPERATIONS:
        assert places.count(operation["operationId"]) == 1
        assert f"#{operation['operationId']}" in links
        assert operation["summary"] in page.text
        assert f"/v1{path}" in page.text
        assert method.upper() in page.text


def test_every_field_of_every_body_is_there_with_its_path(page: Page) -> None:
    bodies = 0
    for _, _, operation in OPERATIONS:
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            rows = page.tables.get(f"Body: {operation['summary']}", [])[1:]
            assert sorted(_path(row[0]) for row in rows) == sorted(_paths(schema))
            bodies += 1
    assert bodies > 3


def test_every_field_of_every_schema_is_there(page: Page) -> None:
    shown = {word.rpartition(".")[2] for rows in page.tables.values() for row in rows for word in row[0].split() if row}
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert set(schema.get("properties", {})) <= shown, name


def test_every_response_is_there_with_its_meaning_and_its_own_headers(page: Page) -> None:
    for _, _, operation in OPERATIONS:
        for status, response in operation["responses"].items():
            row = page.cells(f"Responses: {operation['summary']}", status)
            assert _resolved(response)["description"] in row
            own = set(_resolved(response)["headers"]) - set(DOCUMENT["components"]["headers"])
            assert all(header in row for header in own)
    for header, told in DOCUMENT["components"]["headers"].items():
        assert told["description"] in page.cells("Headers of every response", header)


@pytest.mark.parametrize(
    ("table", "first", "row"),
    [
        ("Body: Create an agent", "name", "name required | string 1 to 255 characters | "),
        ("Body: Create an agent", "voiceSpeed", "voiceSpeed | number 0.6 to 1.5 | 1 | "),
        (
            "Body: Create an agent",
            "allowEndCall",
            "allowEndCall | boolean | true | The agent may end calls proactively",
        ),
        ("Body: Create an agent", "firstSpeaker", "firstSpeaker | string user agent | user"),
        ("Body: Create an agent", "postCallWebhookSecret", "postCallWebhookSecret write-only | string or null"),
        ("Body: Create an agent", "turnEndpointDelay", "turnEndpointDelay | integer or null 50 to 2000 | 100 | "),
        ("Body: Create an agent", "toolIds", "toolIds | array of uuid or null at most 500 items | null | "),
        ("Body: Create a phone number", "number", "number required | string at most 16 characters matches ^("),
        ("Parameters: Get an agent", "id", "id required | path | uuid"),
        ("Parameters: List calls, newest first", "limit", "limit | query | integer 1 to 100 | 50 | Most items"),
        ("Fields: Call", "cost", "cost not always there | number or null"),
        ("Fields: Error", "retryAfter", "retryAfter not always there | integer 1 to 60"),
    ],
)
def test_types_bounds_defaults_and_duties_are_told(page: Page, table: str, first: str, row: str) -> None:
    assert page.cells(table, first).replace('"', "").startswith(row)


def test_nothing_comes_from_elsewhere_and_no_script_is_needed(page: Page) -> None:
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & {
        tag for tag, _ in page.elements
    }
    assert not [name for _, given in page.elements for name in given if name.startswith("on") or name == "style"]
    assert page.all("src") == []
    assert [each for each in page.all("href") if not each.startswith("#")] == ["/v1/openapi.json"]
    assert not re.search(r"url\(|@import|https?:|</", style())


def test_every_link_within_the_page_leads_somewhere_and_every_place_is_one(page: Page) -> None:
    places = page.all("id")
    assert len(set(places)) == len(places)
    assert {each[1:] for each in page.all("href") if each.startswith("#")} <= set(places)
    assert set(page.all("aria-labelledby")) <= set(places)


def test_the_page_has_its_landmarks_and_its_headings_in_order(page: Page) -> None:
    tags = [tag for tag, _ in page.elements]
    assert [tags.count(each) for each in ("html", "title", "nav", "main", "h1")] == [1, 1, 1, 1, 1]
    assert ("html", {"lang": "en"}) in page.elements
    links = [given["href"] for tag, given in page.elements if tag == "a"]
    assert links[0] == "#reference"
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_whatever_the_document_says_stays_text() -> None:
    def hostile(part: Any, key: str = "") -> Any:
        if isinstance(part, dict):
            renamed = {f"{name}{HOSTILE}" if key == "properties" else name: each for name, each in part.items()}
            return {name: hostile(each, name) for name, each in renamed.items()}
        if isinstance(part, list):
            return [hostile(each, key) for each in part]
        kept = not isinstance(part, str) or key in ("$ref", "in", "type", "url", "required")
        return part if kept else part + HOSTILE

    html = render(hostile(DOCUMENT))
    page = Page(html)
    assert page.text.count("<script>alert(1)</script>") > 300
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in Page(render(DOCUMENT)).elements}
    assert not [name for _, given in page.elements for name in given if name.startswith("on")]


def test_every_example_of_a_response_is_as_the_document_says() -> None:
    contract = Contract(DOCUMENT)
    checked = 0
    for operation in contract.operations:
        content = operation.success and operation.success.content
        if content and content.media_type == "application/json":
            sample = body_sample(contract, content, "response")
            schema = {**content.schema, "components": DOCUMENT["components"]}
            assert [each.message for each in OAS30Validator(schema).iter_errors(sample)] == [], operation.anchor
            checked += 1
    assert checked > 10


def test_the_same_document_gives_the_same_page() -> None:
    assert render(DOCUMENT) == render(json.loads(description()))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(scheme: str) -> None:
    blocks = re.findall(r":root \{([^}]*)\}", style())
    colours: dict[str, str] = {}
    for block in blocks[: 1 if scheme == "light" else 2]:
        colours |= dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", block))

    def brightness(name: str) -> float:
        parts = [int(colours[name][at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for text in ("ink", "soft", "accent", "get", "post", "patch", "delete", "text"):
        for ground in ("page", "panel"):
            low, high = sorted((brightness(text), brightness(ground)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)  # WCAG 2.2, 1.4.3


def test_what_the_description_says_under_a_heading_is_a_section() -> None:
    text = "First.\n\n## Errors\nTold by hand.\n\n## Webhook\nSent once."
    page = Page(render({**DOCUMENT, "info": {**DOCUMENT["info"], "description": text}}))
    assert page.all("id").count("about-errors") == 1
    assert "about-webhook" in page.all("id")
    assert "#about-webhook" in page.all("href")
    assert page.text.index("Told by hand.") < page.text.index("A field or parameter breaks a constraint")
