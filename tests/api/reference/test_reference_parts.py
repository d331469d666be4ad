"""What the reference page makes of any OpenAPI document: descriptions, schemas, examples, command lines."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from typing import Any

import pytest

from api.reference.examples import body_sample, curl
from api.reference.markdown import prose
from api.reference.openapi_reader import Contract
from api.reference.page import render
from tests.html_page import Page


def test_text_that_html_cannot_hold_is_replaced() -> None:
    assert prose("a\x00b\ud800c") == "<p>a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c</p>"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("One\nline.\n\nTwo.", "<p>One line.</p>\n<p>Two.</p>"),
        ("`<b>` and **bold**", "<p><code>&lt;b&gt;</code> and <strong>bold</strong></p>"),
        ("[a](https://x.example/a?b&c)", '<p><a href="https://x.example/a?b&amp;c">a</a></p>'),
        ("[a](#errors)", '<p><a href="#errors">a</a></p>'),
        ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"),
        ("With:\n- one\n  more\n- two", "<p>With:</p><ul><li>one more</li><li>two</li></ul>"),
        ("### Title\nText", '<h4 id="about-title">Title</h4><p>Text</p>'),
        ("```sh\na <b>\n\nc\n```\nafter", '<pre tabindex="0"><code>a &lt;b&gt;\n\nc</code></pre>\n<p>after</p>'),
        ("2 * 3 * 4 and a_b_c", "<p>2 * 3 * 4 and a_b_c</p>"),
        (
            "|a|b|\n|-|-|\n|`1`|2|",
            '<table class="plain"><thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>'
            "<tbody><tr><td><code>1</code></td><td>2</td></tr></tbody></table>",
        ),
        ("", ""),
    ],
)
def test_descriptions_are_markdown(text: str, html: str) -> None:
    assert prose(text) == html


def _small(**more: Any) -> dict[str, Any]:
    """A document of one operation, to be filled."""
    operation = {"operationId": "make", "summary": "Make", "tags": ["Things"], "responses": {}, **more.pop("make", {})}
    return {
        "openapi": "3.0.3",
        "info": {"title": "T", "version": "1"},
        "paths": {"/things": {"post": operation}},
        **more,
    }


def _body(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def test_a_schema_that_holds_itself_ends() -> None:
    node = {"$ref": "#/components/schemas/Node"}
    more = {"allOf": [node, {"type": "object", "properties": {"depth": {"type": "integer"}}}]}
    properties = {
        "next": node,
        "wrapped": {"allOf": [node], "nullable": True},
        "children": {"type": "array", "items": node},
        "named": {"type": "object", "additionalProperties": node},
        "either": {"oneOf": [node, {"type": "string"}]},
        "more": more,
    }
    row = {"type": "array", "items": {"$ref": "#/components/schemas/Row"}}
    loop = {"allOf": [{"$ref": "#/components/schemas/Loop"}]}
    answer = {"200": {"description": "", **_body(node)}}
    document = _small(
        make={"requestBody": _body(node), "responses": answer},
        components={"schemas": {"Node": {"type": "object", "properties": properties}, "Row": row, "Loop": loop}},
    )
    page = Page(render(document))
    assert [each[0].split() for each in page.tables["Body: Make"][1:]] == [
        *([each] for each in properties),
        *(["more.", each] for each in (*properties, "depth")),
    ]
    assert page.cells("Fields: Node", "children").split(" | ")[1] == "array of object"
    assert _response_sample(document)["children"] == []


def _response_sample(document: dict[str, Any]) -> Any:
    """The example of the one operation's response."""
    contract = Contract(document)
    success = contract.operations[0].success
    assert success is not None
    assert success.content is not None
    return body_sample(contract, success.content, "response")


def test_the_parts_of_an_all_of_are_one_schema() -> None:
    base = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
    own = {"type": "object", "required": ["b"], "properties": {"b": {"type": "integer", "maximum": 3}}}
    wrapped = {"allOf": [{"$ref": "#/components/schemas/Base"}], "nullable": True, "description": "May be null"}
    schema = {"allOf": [{"$ref": "#/components/schemas/Base"}, own], "properties": {"c": wrapped}}
    page = Page(render(_small(make={"requestBody": _body(schema)}, components={"schemas": {"Base": base}})))
    assert page.cells("Body: Make", "a") == "a required | string | "
    assert page.cells("Body: Make", "b") == "b required | integer at most 3 | "
    assert page.cells("Body: Make", "c") == "c | object or null | May be null"
    assert page.tables["Body: Make"][-1][0].split() == ["c.", "a", "required"]


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        ({}, "any JSON value"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "object"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, "array of array of number"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 3}, "array of string at most 3 items"),
        ({"type": "array", "items": {"enum": ["a"], "type": "string"}}, "array of string a"),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "array of string no two alike"),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, "string or number"),
        ({"type": "integer", "format": "int64"}, "integer (int64)"),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, "integer more than 0"),
        ({"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, "integer at least 0"),
        ({"type": "number", "multipleOf": 0.5}, "number a multiple of 0.5"),
        ({"type": "string", "minLength": 1, "maxLength": 1}, "string 1 to 1 character"),
        ({"type": "string", "minLength": 2}, "string at least 2 characters"),
        ({"type": "string", "enum": ["a", None], "nullable": True}, "string or null a"),
        ({"type": "string", "deprecated": True}, "string"),
    ],
)
def test_every_kind_of_value_has_a_name(schema: dict[str, Any], row: str) -> None:
    page = Page(render(_small(make={"requestBody": _body({"type": "object", "properties": {"field": schema}})})))
    assert page.cells("Body: Make", "field").split(" | ")[1] == row


def test_a_reference_that_leads_nowhere_is_an_error() -> None:
    for reference in ("#/components/schemas/None", "other.json#/x"):
        with pytest.raises(KeyError):
            render(_small(make={"requestBody": _body({"$ref": reference})}))


def test_a_schema_that_no_operation_names_is_shown_too() -> None:
    components = {"schemas": {"Event": {"type": "object", "properties": {"event": {"type": "string"}}}}}
    assert Page(render(_small(components=components))).cells("Fields: Event", "event")


def test_the_errors_that_the_document_gives_as_examples_are_shown() -> None:
    media = {"schema": {"type": "object"}, "examples": {"broke": {"value": {"error": "Top up."}}}}
    answers = {"402": {"description": "No money", "content": {"application/json": media}}}
    page = Page(render(_small(make={"responses": answers})))
    assert page.cells("Responses: Make", "402") == '402 | No money {"error": "Top up."} | object'
    assert page.cells("Errors", "402") == '402 | No money {"error": "Top up."}'


def test_an_example_is_the_documents_own_where_it_has_one() -> None:
    properties = {
        "own": {"type": "string", "example": "told"},
        "filled": {"type": "integer", "default": 7},
        "kind": {"type": "string", "enum": ["x", "y"]},
        "at": {"type": "string", "format": "date-time"},
        "least": {"type": "integer", "minimum": 30},
        "secret": {"type": "string", "writeOnly": True},
        "inner": {"type": "array", "items": {"type": "object", "properties": {"deep": {"type": "boolean"}}}},
    }
    answers = {"200": {"description": "", **_body({"type": "object", "properties": properties})}}
    assert _response_sample(_small(make={"responses": answers})) == {
        "own": "told",
        "filled": 7,
        "kind": "x",
        "at": "2026-11-21T05:00:00.123Z",
        "least": 30,
        "inner": [{"deep": True}],
    }


def test_the_command_line_carries_the_example_whole() -> None:
    body = {"type": "object", "example": {"text": 'it\'s\n$HOME `x` "y"'}}
    parameters = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "example": "a/b c"}},
        {"name": "q", "in": "query", "schema": {"type": "string"}, "example": "x&y"},
        {"name": "left", "in": "query", "schema": {"type": "string"}},
        {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}, "example": "it's me"},
    ]
    document = _small(security=[{"key": []}], servers=[{"url": "/v1"}])
    document["paths"] = {
        "/t/{id}": {"put": {"parameters": parameters, "requestBody": _body(body), "responses": {}}},
    }
    contract = Contract(document)
    words = shlex.split(curl(contract, contract.operations[0]))
    assert words[:4] == ["curl", "-X", "PUT", "$TRUNKLINE_URL/v1/t/a%2Fb%20c?q=x%26y"]
    headers = [after for before, after in pairwise(words) if before == "-H"]
    assert headers == [
        "Authorization: Bearer $TRUNKLINE_KEY",
        "Idempotency-Key: it's me",
        "Content-Type: application/json",
    ]
    assert json.loads(words[-1]) == body["example"]
