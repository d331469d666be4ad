"""Tools, in the order of their table."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, Final

from tests.contract.kinds import Choice, Flag, Form, Given, Id, Text, Time, Whole
from tests.contract.table import Field, Items, Record, Rows, Table
from tests.contract.tables.agents import NO_ADDRESSES, REFUSED_ADDRESSES

HEADER: Final = Record(
    (
        Field(
            "key",
            Form(
                ("Authorization", "X-Tag", "x!#$%&'*+.^_`|~9"),
                ("X Tag", "X-Tag:", "é", "X\n", "Host"),
                sized={"256 characters": ("x" * 256, "x" * 257)},
            ),
            required=True,
        ),
        Field(
            "value",
            Given(Text(0, 8192, words="Bearer {{token}}, Grüße"), bad={"a line break": "a\r\nb"}),
            required=True,
        ),
    )
)
PARAMETER: Final = Record(
    (
        Field("name", Text(1, 255), required=True),
        Field("type", Choice(("string", "number", "integer", "boolean", "object", "array")), required=True),
        Field("description", Text(0, 2000), ""),
        Field("required", Flag(), False),
    )
)
HEADERS: Final = ({"key": "X-A", "value": "{{b}}"}, {"key": "X-B", "value": ""})
NAMED: Final = tuple(
    {"name": f"p{number}", "type": "string", "description": "", "required": False} for number in range(65)
)
CONFIG: Final = Record(
    (
        Field(
            "url",
            Form(
                (
                    "https://example.com/orders/{{order_id}}?day={{ day }}",
                    "https://{{tenant}}.example:{{port}}/",
                    "http://192.168.1.2:8080/x",
                    "https://user@[2001:db8::1]/a#b",
                ),
                (
                    *NO_ADDRESSES,
                    *REFUSED_ADDRESSES,
                    "/orders",
                    "file:///etc/passwd",
                    "https://example.com:0/",
                    "{{scheme}}://example.com/",
                ),
                sized={"4096 characters": ("https://x/" + "a" * 4086, "https://x/" + "a" * 4087)},
            ),
            required=True,
        ),
        Field("method", Choice(("GET", "POST", "PUT", "PATCH", "DELETE")), required=True),
        Field("timeout", Whole(100, 30000), 5000),
        Field("allowVariableHost", Flag(), False),
        Field(
            "headers",
            Items(
                HEADER,
                HEADERS,
                ([HEADERS[0]] * 32, [HEADERS[0]] * 33),
            ),
            [],
        ),
        Field(
            "body",
            Items(
                PARAMETER,
                (
                    {"name": "order", "type": "integer", "description": "Which", "required": True},
                    {"name": "note", "type": "string", "description": "", "required": False},
                ),
                (NAMED[:64], NAMED),
            ),
            [],
        ),
    )
)
FIELDS: Final = (
    Field("name", Text(1, 255), required=True),
    Field("description", Text(0, 4000)),
    Field("type", Choice(("http",)), required=True),
    Field("config", CONFIG, required=True),
)


_NUMBERS: Final = count()


def _least() -> dict[str, Any]:
    return {
        "name": f"Look up, least {next(_NUMBERS)}",
        "type": "http",
        "config": {"url": "https://example.com/", "method": "GET"},
    }


TOOLS: Final = Table(
    noun="Tool",
    path="/tools",
    fields=FIELDS,
    changes=tuple(replace(each, kind=Rows(CONFIG)) if each.name == "config" else each for each in FIELDS),
    told=(
        Field("id", Id("tool"), required=True),
        Field("createdAt", Time(), required=True),
        Field("updatedAt", Time(), required=True),
    ),
    least=_least,
)
