"""What holds for all operations: the key, the errors, the headers of every response."""

from __future__ import annotations

from collections.abc import Iterator

from api.reference.components import Section, block, field_table, meaning, table
from api.reference.examples import KEY, URL, body_sample, curl
from api.reference.html import Html, anchor, code, json_text, lined, tag, together
from api.reference.markdown import line, parts, prose
from api.reference.openapi_reader import Contract, Part, Response
from api.reference.schema_fields import fields, type_name


def guide(contract: Contract) -> Iterator[Section]:
    """The sections before the operations. What the description says under the same heading comes first."""
    told = {title.strip(): prose(text, "h3") for title, text in parts(contract.info.get("description", ""))[1]}
    made = {
        "Authentication": _authentication(contract),
        "Errors": _errors(contract),
        "Headers and rate limits": _headers(contract),
    }
    for title in (*made, *(each for each in told if each not in made)):
        body = together(told.get(title), made.get(title))
        if body:
            yield Section(f"about-{anchor(title.lower())}", title, body)


def _authentication(contract: Contract) -> Html | None:
    schemes = [contract.resolved(each) for each in contract.components("securitySchemes").values()]
    if not schemes:
        return None
    base = [] if "://" in contract.server else [f"export {URL[1:]}=https://voice.example.com"]
    first = next((each for each in contract.operations if each.key == "must" and each.method == "get"), None)
    example = "\n".join([*base, f"export {KEY[1:]}=your-key", *([curl(contract, first)] if first else [])])
    free = [tag("a", each.title, href=f"#{each.anchor}") for each in contract.operations if each.key != "must"]
    return together(
        *(
            together(tag("p", "The key goes into the ", *_place(each), "."), prose(each.get("description")))
            for each in schemes
        ),
        block(example, "Example of a first request"),
        tag("p", "These also open without a key: ", lined(free, ", "), ".") if free else None,
    )


def _place(scheme: Part) -> tuple[str, Html]:
    """Where a key goes: what kind of place it is, and how it is written there."""
    if scheme["type"] == "http":
        return "header ", code(f"Authorization: {scheme['scheme'].title()} {KEY}")
    return f"{scheme.get('in', 'place')} ", code(scheme.get("name", scheme["type"]))


def _errors(contract: Contract) -> Html | None:
    failures = [each for operation in contract.operations for each in operation.responses if not each.good]
    if not failures:
        return None
    rows = [_status(contract, status, failures) for status in sorted({each.status for each in failures})]
    content = next((each.content for each in failures if each.content is not None), None)
    statuses = table("Errors", ["Status", "Meaning", "Headers"], rows)
    if content is None:
        return statuses
    return together(
        statuses,
        tag("h3", "The body of an error"),
        field_table(contract, fields(contract, content.schema), "response", "The body of an error"),
        block(json_text(body_sample(contract, content, "response")), "Example of an error"),
    )


def _status(contract: Contract, status: str, failures: list[Response]) -> list[Html]:
    """A status with all that operations say of it."""
    same = [each for each in failures if each.status == status]
    headers = dict.fromkeys(name for each in same for name in each.headers if name not in contract.shared_headers)
    return [
        tag("span", status, class_="status"),
        together(*dict.fromkeys(meaning(contract, each) for each in same)),
        lined((code(each) for each in headers), " "),
    ]


def _headers(contract: Contract) -> Html | None:
    if not contract.shared_headers:
        return None
    rows = [
        [
            code(name),
            together(type_name(contract, each.get("schema", {}))),
            line(each.get("description")),
        ]
        for name, each in contract.shared_headers.items()
    ]
    return together(
        tag("p", "Every response carries these headers, errors included."),
        table("Headers of every response", ["Header", "Type", "Description"], rows),
    )
