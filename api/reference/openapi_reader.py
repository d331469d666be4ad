"""An OpenAPI 3.0 document, asked for what the page shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from api.reference.html import anchor

Part = Mapping[str, Any]
METHODS: Final = frozenset({"get", "put", "post", "patch", "delete", "head", "options", "trace"})


@dataclass(frozen=True)
class Schema:
    """A schema with its references followed and its `allOf` joined."""

    facts: Part

    @property
    def properties(self) -> Part:
        """Its fields, as they stand in the document."""
        found: Part = self.facts.get("properties", {})
        return found

    def requires(self, name: str) -> bool:
        """Whether the field must be there."""
        return name in self.facts.get("required", ())


@dataclass(frozen=True)
class Content:
    """What a body is made of: its media type, and that type's schema and examples."""

    media_type: str
    facts: Part

    @property
    def schema(self) -> Part:
        """The schema, as it stands in the document."""
        found: Part = self.facts.get("schema", {})
        return found


@dataclass(frozen=True)
class Response:
    """What comes back with a status."""

    status: str
    description: str
    headers: Part
    content: Content | None

    @property
    def good(self) -> bool:
        """Whether the status says success."""
        return self.status.startswith("2")


@dataclass(frozen=True)
class Operation:
    """One method of one path. `key`: must it be given, may it, or is none needed."""

    method: str
    path: str
    facts: Part
    parameters: list[Part]
    content: Content | None
    responses: list[Response]
    key: Literal["must", "may", "none"]

    @property
    def anchor(self) -> str:
        """Its place on the page."""
        return anchor(self.facts.get("operationId") or f"{self.method}-{self.path}")

    @property
    def title(self) -> str:
        """What it does, in a few words."""
        return str(self.facts.get("summary") or f"{self.method.upper()} {self.path}")

    @property
    def tag(self) -> str:
        """The group that it belongs to."""
        return str(next(iter(self.facts.get("tags", ())), "Operations"))

    @property
    def success(self) -> Response | None:
        """The first response that says success."""
        return next((each for each in self.responses if each.good), None)


class Contract:
    """The document. A reference that leads nowhere raises `KeyError`."""

    def __init__(self, document: Part) -> None:
        self.document = document
        self.operations = list(self._operations())

    @property
    def info(self) -> Part:
        """Title, version, description."""
        found: Part = self.document.get("info", {})
        return found

    @property
    def server(self) -> str:
        """The address that all paths continue, without a slash at its end."""
        return str(next((each["url"] for each in self.document.get("servers", ())), "")).rstrip("/")

    @property
    def server_path(self) -> str:
        """The path alone of that address, as `/v1`."""
        return urlsplit(self.server).path

    @property
    def tags(self) -> dict[str, str]:
        """The groups that have operations, each with its description."""
        told = {each["name"]: each.get("description", "") for each in self.document.get("tags", ())}
        used = dict.fromkeys(each.tag for each in self.operations)
        return {name: told.get(name, "") for name in (*told, *used) if name in used}

    def components(self, kind: str) -> Part:
        """Parts that the document names: `schemas`, `securitySchemes` and so on."""
        found: Part = self.document.get("components", {}).get(kind, {})
        return found

    def resolved(self, part: Part) -> Part:
        """The part, or what it refers to."""
        seen = set()
        while (reference := part.get("$ref")) is not None:
            if reference in seen or not reference.startswith("#/"):
                raise KeyError(reference)
            seen.add(reference)
            part = self.document
            for name in reference.removeprefix("#/").split("/"):
                part = part[name.replace("~1", "/").replace("~0", "~")]
        return part

    def schema(self, part: Part, within: frozenset[int] = frozenset()) -> Schema:
        """A schema in one piece. One that holds itself by `allOf` alone is empty there."""
        part = self.resolved(part)
        if "allOf" not in part:
            return Schema(part)
        if id(part) in within:
            return Schema({})
        own = {key: value for key, value in part.items() if key != "allOf"}
        return _joined([self.schema(each, within | {id(part)}) for each in (*part["allOf"], own)])

    def identity(self, part: Part) -> int:
        """The same number for all parts that come to the same schema, by a reference or by an `allOf` around one."""
        seen = set()
        part = self.resolved(part)
        while len(part.get("allOf", ())) == 1 and "properties" not in part and id(part) not in seen:
            seen.add(id(part))
            part = self.resolved(part["allOf"][0])
        return id(part)

    @cached_property
    def shared_headers(self) -> Part:
        """The headers that every response has."""
        every = [response.headers for operation in self.operations for response in operation.responses]
        first = every[0] if every else {}
        return {name: header for name, header in first.items() if all(name in each for each in every)}

    @cached_property
    def namesakes(self) -> dict[tuple[str, str], Any]:
        """Examples and defaults of the named schemas' fields, by name and type: good for a field of the same name that
        has none of its own. Empty ones would show too little."""
        found: dict[tuple[str, str], Any] = {}
        for component in self.components("schemas").values():
            for name, part in self.schema(component).properties.items():
                facts = self.schema(part).facts
                value = facts.get("example", facts.get("default"))
                if value not in (None, "", [], {}):
                    found.setdefault((name, facts.get("type", "object")), value)
        return found

    def _operations(self) -> Iterator[Operation]:
        for path, item in self.document.get("paths", {}).items():
            for method in (each for each in item if each in METHODS):
                yield self._operation(method, path, item)

    def _operation(self, method: str, path: str, item: Part) -> Operation:
        facts = item[method]
        given = [self.resolved(each) for each in (*item.get("parameters", ()), *facts.get("parameters", ()))]
        return Operation(
            method=method,
            path=path,
            facts=facts,
            parameters=list({(each["in"], each["name"]): each for each in given}.values()),
            content=_content(self.resolved(facts.get("requestBody", {}))),
            responses=[self._response(status, self.resolved(each)) for status, each in facts["responses"].items()],
            key=_key(facts.get("security", self.document.get("security", ()))),
        )

    def _response(self, status: str, facts: Part) -> Response:
        headers = {name: self.resolved(each) for name, each in facts.get("headers", {}).items()}
        return Response(status, facts.get("description", ""), headers, _content(facts))


def _joined(pieces: list[Schema]) -> Schema:
    """The pieces of an `allOf`: what comes later says more about the same."""
    facts: dict[str, Any] = {}
    for piece in pieces:
        both = {
            "properties": {**facts.get("properties", {}), **piece.properties},
            "required": [*facts.get("required", ()), *piece.facts.get("required", ())],
        }
        facts |= {**piece.facts, **{name: value for name, value in both.items() if value}}
    return Schema(facts)


def _content(facts: Part) -> Content | None:
    """The first media type of a body."""
    return next((Content(name, each) for name, each in facts.get("content", {}).items()), None)


def _key(security: list[Part]) -> Literal["must", "may", "none"]:
    """What the alternatives of a security list come to; an empty alternative asks for nothing."""
    if not any(security):
        return "none"
    return "must" if all(security) else "may"
