"""Example values and requests, made from the document alone: the same document always gives the same."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode
from uuid import UUID

from api.reference.openapi_reader import Content, Contract, Operation, Part, Schema

Side = Literal["request", "response"]
HIDDEN: Final = {"request": "readOnly", "response": "writeOnly"}
FORMATS: Final = {
    "date": "2026-11-21",
    "date-time": "2026-11-21T05:00:00.123Z",
    "uri": "https://example.com/",
    "email": "someone@example.com",
    "byte": "UklGRg==",
}
KEY: Final = "$TRUNKLINE_KEY"
URL: Final = "$TRUNKLINE_URL"


def told_samples(contract: Contract, facts: Part) -> list[Any]:
    """The examples that the document gives for a body or a parameter."""
    if "example" in facts:
        return [facts["example"]]
    named = (contract.resolved(each) for each in facts.get("examples", {}).values())
    return [each["value"] for each in named if "value" in each]


def body_sample(contract: Contract, content: Content, side: Side) -> Any:
    """An example of a whole body: the document's own, or one made from the schema."""
    given = told_samples(contract, content.facts)
    return given[0] if given else _value(contract, content.schema, side, "", frozenset())


def parameter_sample(contract: Contract, parameter: Part) -> Any:
    """An example of a parameter's value."""
    given, schema = told_samples(contract, parameter), parameter.get("schema", {})
    return given[0] if given else _value(contract, schema, "request", parameter["name"], frozenset())


def curl(contract: Contract, operation: Operation) -> str:
    """A command line that carries the operation out. The server's address, unless the document tells it, and the key
    are shell variables."""
    method = "" if operation.method == "get" else f"-X {operation.method.upper()} "
    words = [f"curl {method}{_address(contract, operation)}"]
    if operation.key != "none":
        words.append(f'-H "Authorization: Bearer {KEY}"')
    for each in operation.parameters:
        if each["in"] == "header" and _wanted(each):
            value = _written(parameter_sample(contract, each))
            words.append(f"-H {shlex.quote(each['name'] + ': ' + value)}")
    if operation.content is not None:
        words += _body(contract, operation.content)
    words += _output(operation)
    return " \\\n  ".join(words)


def _body(contract: Contract, content: Content) -> Iterator[str]:
    yield f"-H {shlex.quote(f'Content-Type: {content.media_type}')}"
    body = json.dumps(body_sample(contract, content, "request"), indent=2, ensure_ascii=False)
    yield "-d " + shlex.quote(body.replace("\n", "\n  "))


def _output(operation: Operation) -> Iterator[str]:
    """Bytes go into a file that is named after the path."""
    content = operation.success and operation.success.content
    if content and not content.media_type.endswith("json"):
        name, ending = operation.path.rpartition("/")[2].strip("{}"), content.media_type.rpartition("/")[2]
        yield f"-o {shlex.quote(f'{name}.{ending}')}"


def _address(contract: Contract, operation: Operation) -> str:
    samples = {
        each["name"]: _written(parameter_sample(contract, each)) for each in operation.parameters if _wanted(each)
    }
    pieces = re.split(r"\{([^}]+)\}", operation.path)
    path = "".join(
        quote(each, safe="/") if number % 2 == 0 else quote(samples.get(each, each), safe="")
        for number, each in enumerate(pieces)
    )
    query = urlencode({each["name"]: samples[each["name"]] for each in operation.parameters if _asked(each)})
    rest = path + (f"?{query}" if query else "")
    if "://" in contract.server:
        return shlex.quote(contract.server + rest)
    return f'"{URL}{quote(contract.server)}{rest}"'


def _asked(parameter: Part) -> bool:
    return parameter["in"] == "query" and _wanted(parameter)


def _wanted(parameter: Part) -> bool:
    return bool(parameter.get("required")) or "example" in parameter or "examples" in parameter


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(contract: Contract, part: Part, side: Side, name: str, open_: frozenset[int]) -> Any:
    schema = contract.schema(part)
    facts, open_ = schema.facts, open_ | {contract.identity(part)}
    for told in ("example", "default"):
        if told in facts:
            return facts[told]
    kind, allowed = facts.get("type", "object"), facts.get("enum", [])
    namesake = contract.namesakes.get((name, kind))
    if namesake is not None and (not allowed or namesake in allowed):
        return namesake
    if allowed:
        return allowed[0]
    for each in (*facts.get("oneOf", ()), *facts.get("anyOf", ())):
        if contract.identity(each) not in open_:
            return _value(contract, each, side, name, open_)
    match kind:
        case "object":
            return _object(contract, schema, side, open_)
        case "array":
            items = facts.get("items", {})
            return [] if contract.identity(items) in open_ else [_value(contract, items, side, name, open_)]
        case _:
            return _plain(kind, facts, name)


def _object(contract: Contract, schema: Schema, side: Side, open_: frozenset[int]) -> dict[str, Any]:
    """All fields of a response; of a request those that must be there or have an example, or else the first."""
    shown = {
        name: part
        for name, part in schema.properties.items()
        if not contract.schema(part).facts.get(HIDDEN[side]) and contract.identity(part) not in open_
    }
    if side == "request":
        told = [each for each, part in shown.items() if "example" in contract.schema(part).facts]
        chosen = [each for each in shown if schema.requires(each) or each in told] or list(shown)[:1]
        shown = {each: shown[each] for each in chosen}
    return {name: _value(contract, part, side, name, open_) for name, part in shown.items()}


def _plain(kind: str, facts: Part, name: str) -> Any:
    """A value of a type that holds no others. Each name has its own UUID (version 4 in its form)."""
    match kind, facts.get("format"):
        case "string", "uuid":
            return str(UUID(bytes=hashlib.sha256(name.encode()).digest()[:16], version=4))
        case "string", form:
            return FORMATS.get(str(form), "string")
        case "boolean", _:
            return True
        case _:
            return facts.get("minimum", 1)
