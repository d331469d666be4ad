"""Validation errors: plain sentences with the path of each field, of limited size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.api.conftest import Api

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUMBER = "Must be an E.164 number, as +41441234567, or an extension of "
LONG_ADDRESS = "https://music.example/" + "x" * 500
HEADER: dict[str, Any] = {"key": "X-A", "value": "b"}
AT_MOST_500 = "Must have at most 500 characters"


@pytest.fixture(scope="module")
def api(module_api: Api) -> Api:
    return module_api


@pytest.mark.parametrize(
    ("path", "body", "field", "message"),
    [
        ("/agents", {"holdMusicUrl": LONG_ADDRESS}, "holdMusicUrl", AT_MOST_500),
        ("/agents", {"holdMessage": "x" * 501}, "holdMessage", AT_MOST_500),
        ("/agents", {"name": ""}, "name", "Must have at least 1 character"),
        ("/agents", {"languageHint": "x" * 11}, "languageHint", "Must have at most 10 characters"),
        ("/agents", {"languageHint": "e n"}, "languageHint", "Must be a language tag (BCP 47), as en or pt-BR"),
        ("/agents", {"transferTargets": [{"number": "1"}]}, "transferTargets.0.number", f"{NUMBER}2 to 7 digits"),
        ("/phone-numbers", {"number": "1"}, "number", f"{NUMBER}2 to 15 digits"),
        ("/phone-numbers", {"sipUsername": "a b"}, "sipUsername", "Must have no spaces, control characters"),
        ("/calls", {"to": "1"}, "to", f"{NUMBER}2 to 7 digits, as 100"),
        ("/tools", {"config": {"headers": [HEADER | {"key": "a b"}]}}, "config.headers.0.key", "Must be the name of"),
        (
            "/tools",
            {"config": {"headers": [HEADER | {"value": "\n"}]}},
            "config.headers.0.value",
            "Must have no control",
        ),
    ],
)
async def test_a_validation_error_is_a_plain_sentence(
    api: Api, path: str, body: dict[str, Any], field: str, message: str
) -> None:
    _, answer = await api("POST", path, body)
    (reported,) = (each["message"] for each in answer["details"] if each["field"] == field)
    assert reported.startswith(message)
    assert "^" not in reported.replace("!#$%&'*+-.^_`|~", "")


@pytest.mark.parametrize(
    ("query", "problems"),
    [
        ("limit=x", {"limit": "Must be a whole number"}),
        ("offset=-1", {"offset": "Must be greater than or equal to 0"}),
        ("offset=99999999999999999999", {"offset": "Must be less than or equal to 9223372036854775807"}),
        (
            "limit=101&offset=-1&sort=name&status=done",
            {
                "sort": "Unknown parameter",
                "limit": "Must be less than or equal to 100",
                "offset": "Must be greater than or equal to 0",
                "status": "Must be 'queued', 'ringing', 'in_progress', 'completed', 'failed' or 'no_answer'",
            },
        ),
        ("limit=x&limit=1&offset=x", {"limit": "Must be given once", "offset": "Must be a whole number"}),
        (
            "from=2026-11-21T05:00:00+01:00",
            {"from": "Must be an ISO 8601 time, as 2026-11-21T05:00:00Z; in a URL + is %2B"},
        ),
    ],
)
async def test_every_problem_of_a_query_is_reported_once(api: Api, query: str, problems: dict[str, str]) -> None:
    status, answer = await api("GET", f"/calls?{query}")
    assert status == 400
    assert sorted((each["field"], each["message"]) for each in answer["details"]) == sorted(problems.items())


UNSHOWN = (
    "a\nb", "a\tb", "a\0", "\x1b[31mred", "a\x7f", "a\x85b", "a\u202eb", "\u202aa", "a\u2066b\u2069", "\u200fa",
    "a\u200e", "a\u061cb", "a\u2028b", "a\u200bb", "\ufeffa",
    "a\u00adb", "a\u180eb", "a\ufff9", "\ufffba", "a\U000e0000", "a\U000e0041", "\U000e007fa",
)  # fmt: skip
TARGET = {"description": "", "number": "+41441234567", "mode": "cold"}


@pytest.mark.parametrize("name", UNSHOWN)
@pytest.mark.parametrize(
    ("path", "field", "body"),
    [
        ("/agents", "name", lambda name: {"name": name}),
        ("/agents", "transferTargets.0.name", lambda name: {"transferTargets": [TARGET | {"name": name}]}),
        (
            "/agents",
            "postCallExtractionSchema.0.name",
            lambda name: {"postCallExtractionSchema": [{"name": name, "description": "", "type": "string"}]},
        ),
        ("/tools", "name", lambda name: {"name": name}),
        (
            "/tools",
            "config.body.0.name",
            lambda name: {"config": {"body": [{"name": name, "type": "string"}]}},
        ),
        ("/phone-numbers", "name", lambda name: {"name": name}),
        ("/knowledge", "name", lambda name: {"name": name}),
        ("/knowledge", "filename", lambda name: {"filename": name}),
        ("/background-sounds", "name", lambda name: {"name": name}),
        ("/background-sounds", "filename", lambda name: {"filename": name}),
    ],
)
async def test_a_name_with_invisible_or_bidirectional_characters_is_rejected(
    api: Api, path: str, field: str, body: Callable[[str], dict[str, Any]], name: str
) -> None:
    _, answer = await api("POST", path, body(name))
    (reported,) = (each["message"] for each in answer["details"] if each["field"] == field)
    assert reported.startswith("Must have no line breaks, no control characters")


@pytest.mark.parametrize(
    "name",
    [
        "Grüße, 🙂!",
        "\u0646\u0648\u0628\u062a\u200c\u06cc\u0627\u0628",
        "מרפאה",
        "👩\u200d💻",
        "前台",
        "e\u0301",
        "a\u00a0b",
        "\u2764\ufe0f",
        "葛\U000e0100",
    ],
)
async def test_names_of_every_script_are_accepted(api: Api, name: str) -> None:
    status, answer = await api("POST", "/agents", {"name": name, "systemPrompt": "One\n\tTwo"})
    assert (status, answer["data"]["name"]) == (201, name)


@pytest.mark.parametrize(("unknown", "last"), [(99, "x98"), (100, "x99"), (101, "body"), (50_000, "body")])
async def test_an_error_reports_the_first_hundred_of_many_problems(api: Api, unknown: int, last: str) -> None:
    status, answer = await api("POST", "/agents", {"name": "Anna"} | {f"x{n}": 1 for n in range(unknown)})
    details = answer["details"]
    assert (status, len(details), details[-1]["field"]) == (400, min(unknown, 101), last)
    if last == "body":
        more = unknown - 100
        assert details[-1]["message"] == f"Has {more} more {'problem' if more == 1 else 'problems'}"


async def test_an_error_reports_the_first_hundred_of_many_unknown_tools(api: Api) -> None:
    status, answer = await api("POST", "/agents", {"name": "Anna", "toolIds": [str(uuid4()) for _ in range(300)]})
    details = answer["details"]
    assert (status, details[0]["field"], details[99]["field"]) == (400, "toolIds.0", "toolIds.99")
    assert details[100:] == [{"field": "body", "message": "Has 200 more problems"}]


async def test_an_error_shortens_a_long_field_name(api: Api) -> None:
    for name, reported in (("x" * 200, "x" * 200), ("x" * 201, "x" * 200 + "…"), ("x" * 500_000, "x" * 200 + "…")):
        _, answer = await api("POST", "/agents", {"name": "Anna", name: 1})
        assert answer["details"] == [{"field": reported, "message": "Unknown field"}]
