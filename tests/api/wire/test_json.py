"""Limits of JSON: depth, numbers, characters, duplicate keys; and bodies that are not JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.http.duplicate_json_keys import duplicate_key
from api.routing.validation import is_nested_deeper_than
from api.schemas.bounds import MAX_DEPTH
from tests.api.wire.conftest import Live


async def _posted(live: Live, body: bytes, *fields: str, path: str = "/v1/agents") -> tuple[int, Any]:
    head = live.head("POST", path, f"Content-Length: {len(body)}", *fields)
    answer = await (await live.connect()).ask(head + body)
    return answer.status, answer.json


def _number(metadata: bytes) -> bytes:
    """The body of a phone number with this JSON as metadata."""
    return b'{"number": "100", "provider": "sip", "metadata": {"a": %b}}' % metadata


def _nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        (b"{}", 1),
        (b"[[],[],{}]", 2),
        (b'{"a":{"b":[{}]}}', 4),
        (b'["[[[[[[[[", "{{{{{{{{"]', 1),
        (b'["\\"[[[", [0], "\\\\", [[0]], "\\\\\\"[[["]', 3),
        (_nested(100), 100),
        (b"[" + b"[]," * 100 + b"[[]]]", 3),
    ],
)
def test_depth_counts_objects_and_lists_but_no_brackets_in_strings(body: bytes, depth: int) -> None:
    assert not is_nested_deeper_than(depth, body)
    assert is_nested_deeper_than(depth - 1, body)


async def test_a_body_may_be_nested_up_to_the_maximum_depth(live: Live) -> None:
    deepest = _nested(MAX_DEPTH - 2)
    status, answer = await _posted(live, _number(deepest), path="/v1/phone-numbers")
    assert status == 201
    _, again = await live.api("GET", f"/phone-numbers/{answer['data']['id']}")
    assert again["data"]["metadata"] == answer["data"]["metadata"]
    for levels in (MAX_DEPTH - 1, 150, 100_000):
        status, answer = await _posted(live, _number(_nested(levels)), path="/v1/phone-numbers")
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["body"])


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"a": 1, "b": {"a": 2}, "c": [{"a": 1}, {"a": 1}]}', None),
        (b'{"a": 1, "a": 1}', ["a"]),
        (b'{"a": 1, "\\u0061" : 1}', ["a"]),
        (b'{"a": {"b": [0, [], {"c": 1, "d": {}, "c": 2}]}}', ["a", "b", "2", "c"]),
        (b'{"a": "a", "b": "a\\\\", "c": "\\"b\\":"}', None),
        ('{"é": 1, "\\u00e9": 2}'.encode(), ["é"]),
        (b'{"": 1, "": 2}', [""]),
        (b'["a", "a", {"a": "a"}]', None),
        (b'"a"', None),
        (b'{"\\\\": 1, "\\\\": 2}', ["\\"]),
        (b'{"' + b"\\\\" * 100 + b'": 1, "' + b"\\\\" * 101 + b'": 2}', None),
    ],
)
def test_the_first_duplicate_key_is_found(body: bytes, path: list[str] | None) -> None:
    assert duplicate_key(body) == path


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"name": "A", "name": "B"}', "name"),
        (b'{"name": "A", "n\\u0061me": "B"}', "name"),
        (b'{"name": "A", "transferTargets": [], "transferTargets": []}', "transferTargets"),
    ],
)
async def test_a_body_with_a_duplicate_key_is_rejected_and_nothing_is_created(
    live: Live, body: bytes, field: str
) -> None:
    status, answer = await _posted(live, body, path="/v1/agents")
    assert (status, answer["details"]) == (400, [{"field": field, "message": "Is given twice"}])
    _, listed = await live.api("GET", "/agents")
    assert listed["pagination"]["total"] == 0


async def test_a_duplicate_key_in_metadata_is_rejected_with_its_path(live: Live) -> None:
    status, answer = await _posted(live, _number(b'{"a": [{"b": 1, "b": 2}]}'), path="/v1/phone-numbers")
    assert (status, answer["details"]) == (400, [{"field": "metadata.a.a.0.b", "message": "Is given twice"}])


async def test_large_numbers_in_metadata_are_stored_exactly(live: Live) -> None:
    numbers = b"[%b, -%b, 1e308, 1%b]" % (b"9" * 4000, b"9" * 4000, b"0" * 308)
    status, answer = await _posted(live, _number(numbers), path="/v1/phone-numbers")
    assert status == 201
    _, again = await live.api("GET", f"/phone-numbers/{answer['data']['id']}")
    assert again["data"]["metadata"]["a"] == answer["data"]["metadata"]["a"] == json.loads(numbers)


async def test_a_number_with_too_many_digits_is_rejected(live: Live) -> None:
    for number in (b"9" * 5000, b"1e999", b"-1e999", b"NaN", b"Infinity"):
        status, answer = await _posted(live, _number(number), path="/v1/phone-numbers")
        assert (status, answer["error"]) == (400, "Validation failed")
        status, answer = await _posted(live, b'{"name": "x", "firstMessageDelay": %b}' % number)
        assert (status, answer["error"]) == (400, "Validation failed")


async def test_a_large_number_for_a_field_names_the_field(live: Live) -> None:
    for number in (b"9" * 400, b"-" + b"9" * 400, b"1e300"):
        status, answer = await _posted(live, b'{"name": "x", "firstMessageDelay": %b}' % number)
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["firstMessageDelay"])


async def test_an_incomplete_character_is_a_problem_with_the_body(live: Live) -> None:
    for text in (b"\\ud800", b"\\udc00", b"\\udc00\\ud800", b"\\ud800x", b"\xed\xa0\x80", b"\xff"):
        for body in (b'{"name": "%b"}' % text, b'{"%b": 1}' % text):
            status, answer = await _posted(live, body)
            assert (status, [each["field"] for each in answer["details"]]) == (400, ["body"])
        status, answer = await _posted(live, _number(b'"%b"' % text), path="/v1/phone-numbers")
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["body"])


async def test_every_character_is_returned_as_it_was_sent(live: Live) -> None:
    for text in ("\\ud83d\\udcde", "\U0001f4de", "\\u2028", "\\u202e", "\\uffff"):
        status, created = await _posted(live, f'{{"name": "x", "systemPrompt": "{text}"}}'.encode())
        assert status == 201
        _, again = await live.api("GET", f"/agents/{created['data']['id']}")
        assert again["data"]["systemPrompt"] == json.loads(f'"{text}"')


async def test_u_0000_becomes_u_fffd(live: Live) -> None:
    status, created = await _posted(live, b'{"name": "x", "systemPrompt": "a\\u0000b"}')
    _, again = await live.api("GET", f"/agents/{created['data']['id']}")
    assert (status, created["data"]["systemPrompt"], again["data"]["systemPrompt"]) == (201, "a\ufffdb", "a\ufffdb")
    status, refused = await _posted(live, b'{"name": "a\\u0000b", "systemPrompt": "p"}')
    assert (status, [each["field"] for each in refused["details"]]) == (400, ["name"])


NO_OBJECTS = [
    b"",
    b" ",
    b'\xef\xbb\xbf{"name": "x"}',
    '{"name": "x"}'.encode("utf-16"),
    b'{"name": "x"}{}',
    b'{"name": "x"} // why',
    b"\x00",
    b"name=x",
    b"null",
    b"[]",
    b'"x"',
    b"5",
]


async def test_anything_but_a_json_object_is_a_problem_with_the_body(live: Live) -> None:
    for body in NO_OBJECTS:
        status, answer = await _posted(live, body, "Content-Type: application/json")
        assert (body, status, [each["field"] for each in answer["details"]]) == (body, 400, ["body"])


async def test_json_is_accepted_with_any_media_type_but_forms(live: Live) -> None:
    assert (await _posted(live, b'{"name": "x"}'))[0] == 201
    for kind in ("application/json", "APPLICATION/JSON; charset=utf-8", "text/plain", "application/x+json", "odd", ""):
        assert (await _posted(live, b'{"name": "x"}', f"Content-Type: {kind}"))[0] == 201


async def test_a_form_is_rejected_with_the_media_type_to_send(live: Live) -> None:
    problem = {"field": "body", "message": "Must be JSON, sent as application/json"}
    for kind in ("application/x-www-form-urlencoded", "Multipart/Form-Data; boundary=x"):
        answered = await _posted(live, b'{"name": "x"}', f"Content-Type: {kind}")
        assert answered == (400, {"error": "Validation failed", "details": [problem]})
