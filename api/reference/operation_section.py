"""One operation as a part of the page: what it does, an example of it, its parameters, body and responses."""

from __future__ import annotations

import re
from typing import Final

from api.reference.components import (
    block,
    default_cell,
    field_table,
    flags,
    meaning,
    method_badge,
    shape,
    table,
    titled,
    type_cell,
)
from api.reference.examples import body_sample, curl
from api.reference.html import Html, code, json_text, lined, tag, together
from api.reference.markdown import line, prose
from api.reference.openapi_reader import Contract, Operation, Response
from api.reference.schema_fields import fields

KEY: Final = {"must": "API key", "may": "API key optional", "none": "No key"}


def article(contract: Contract, operation: Operation) -> Html:
    """The whole operation, under its anchor."""
    name = operation.anchor
    return tag(
        "article",
        tag(
            "header",
            titled("h3", operation.title, name),
            tag(
                "p",
                method_badge(operation.method),
                _path(contract.server_path + operation.path),
                tag("span", KEY[operation.key], class_=f"key {operation.key}"),
                tag("span", "deprecated", class_="flag") if operation.facts.get("deprecated") else None,
                class_="address",
            ),
            prose(operation.facts.get("description")),
        ),
        _samples(contract, operation),
        tag("div", _parameters(contract, operation), _body(contract, operation), _responses(contract, operation)),
        class_="operation",
        id=name,
        aria_labelledby=f"{name}-title",
    )


def _path(path: str) -> Html:
    """A path whose parameters stand out."""
    pieces = re.split(r"(\{[^}]*\})", path)
    return tag("code", *(tag("b", each) if each.startswith("{") else each for each in pieces))


def _samples(contract: Contract, operation: Operation) -> Html:
    request = tag(
        "div",
        tag("h4", "Request"),
        block(curl(contract, operation), f"Example request: {operation.title}"),
    )
    success = operation.success
    if success is None or success.content is None:
        return tag("div", request, class_="samples")
    if success.content.media_type.endswith("json"):
        shown = json_text(body_sample(contract, success.content, "response"))
    else:
        shown = together(f"({success.content.media_type})")
    response = tag("div", tag("h4", f"Response {success.status}"), block(shown, f"Example response: {operation.title}"))
    return tag("div", request, response, class_="samples")


def _parameters(contract: Contract, operation: Operation) -> Html | None:
    if not operation.parameters:
        return None
    rows = []
    for each in operation.parameters:
        schema = contract.schema(each.get("schema", {}))
        told = each.get("description") or schema.facts.get("description")
        rows.append(
            [
                together(code(each["name"]), flags(each, bool(each.get("required")))),
                together(each["in"]),
                type_cell(contract, each.get("schema", {})),
                default_cell(schema.facts),
                line(told),
            ]
        )
    titles = ["Parameter", "In", "Type", "Default", "Description"]
    return together(tag("h4", "Parameters"), table(f"Parameters: {operation.title}", titles, rows))


def _body(contract: Contract, operation: Operation) -> Html | None:
    content = operation.content
    if content is None:
        return None
    told = contract.schema(content.schema).facts.get("description")
    body = contract.resolved(operation.facts["requestBody"])
    found = list(fields(contract, content.schema))
    return together(
        tag("h4", "Body"),
        tag("p", code(content.media_type), ", required" if body.get("required") else ", optional", class_="kind"),
        prose(body.get("description") or told),
        field_table(contract, found, "request", f"Body: {operation.title}")
        if found
        else tag("p", shape(contract, content.schema)),
    )


def _responses(contract: Contract, operation: Operation) -> Html:
    rows = [
        [
            tag("span", each.status, class_="status good" if each.good else "status"),
            meaning(contract, each),
            _response_body(contract, each),
            lined((code(name) for name in each.headers if name not in contract.shared_headers), " "),
        ]
        for each in operation.responses
    ]
    label = f"Responses: {operation.title}"
    return together(tag("h4", "Responses"), table(label, ["Status", "Meaning", "Body", "Headers"], rows))


def _response_body(contract: Contract, response: Response) -> Html:
    if response.content is None:
        return together("none")
    if not response.content.media_type.endswith("json"):
        return code(response.content.media_type)
    return tag("span", shape(contract, response.content.schema), class_="shape")
