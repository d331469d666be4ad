"""The reference page: one HTML document with everything in it, readable without a script and without a network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from api.reference.components import Section, method_badge, titled
from api.reference.html import Html, anchor, code, lined, tag, together
from api.reference.introduction import guide
from api.reference.markdown import parts, prose
from api.reference.openapi_reader import Contract, Operation
from api.reference.operation_section import article
from api.reference.schemas_section import objects

DESCRIPTION: Final = "/v1/openapi.json"


@cache
def style() -> str:
    """The page's style sheet."""
    return files(__package__).joinpath("style.css").read_text("utf-8")


def policy() -> str:
    """The page's Content-Security-Policy: its own style sheet, and nothing else from anywhere."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    refused = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return f"default-src 'none'; style-src 'sha256-{digest}'; {refused}"


def render(document: Mapping[str, Any]) -> str:
    """The page of an OpenAPI 3.0 document. A reference that leads nowhere raises `KeyError`."""
    contract = Contract(document)
    groups = (_group(contract, name, description) for name, description in contract.tags.items())
    sections = [each for each in (*guide(contract), *groups, objects(contract)) if each is not None]
    title = f"{contract.info.get('title', 'Voice')} API"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", f"{title} reference"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("style", Html(style())),
    )
    body = tag(
        "body",
        tag("a", "Skip to the reference", href="#reference", class_="skip"),
        _contents(title, sections),
        tag("main", _opening(contract, title), lined(map(_section, sections)), id="reference"),
        tag("a", "Contents", href="#contents", class_="back"),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _contents(title: str, sections: list[Section]) -> Html:
    """The contents: beside the page where there is room, else folded away at its top."""
    listed = [tag("li", tag("a", each.title, href=f"#{each.name}"), _entries(each)) for each in sections]
    return tag(
        "nav",
        tag("a", title, href="#reference", class_="brand"),
        tag("details", tag("summary", "Contents"), tag("ul", *listed)),
        id="contents",
        aria_label="Contents",
    )


def _entries(section: Section) -> Html | None:
    if not section.entries:
        return None
    return tag("ul", *(tag("li", tag("a", label, href=f"#{name}")) for name, label in section.entries))


def _opening(contract: Contract, title: str) -> Html:
    info = contract.info
    facts = {
        "Base address": code(contract.server or "/"),
        "Version": together(str(info.get("version", ""))),
        "Machine-readable": tag("a", f"OpenAPI {contract.document.get('openapi', '3.0')}", href=DESCRIPTION),
        "Licence": together(info.get("license", {}).get("name")),
    }
    return tag(
        "header",
        tag("h1", title),
        prose(parts(info.get("description", ""))[0], heading="h2"),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items() if value)),
        class_="opening",
    )


def _group(contract: Contract, name: str, description: str) -> Section:
    """A tag with its operations."""
    operations = [each for each in contract.operations if each.tag == name]
    return Section(
        name=f"tag-{anchor(name.lower())}",
        title=name,
        body=together(prose(description, "h3"), lined(article(contract, each) for each in operations)),
        entries=[(each.anchor, _entry(each)) for each in operations],
    )


def _entry(operation: Operation) -> Html:
    return together(method_badge(operation.method), " ", tag("span", operation.title))


def _section(section: Section) -> Html:
    heading = titled("h2", section.title, section.name)
    return tag("section", heading, section.body, id=section.name, aria_labelledby=f"{section.name}-title")
