"""Which status each operation answers when, with which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.kinds import ID_FORMS, NO_ID
from tests.contract.operations import METHODS, OPERATIONS, OPERATORS, PATHS, Operation
from tests.contract.server import Server
from tests.contract.world import World

WITH_BODY = [each for each in OPERATIONS if each.body is not None]
WITHOUT_BODY = [each for each in OPERATIONS if each.body is None and each.method == "POST"]
WITH_ID = [each for each in OPERATIONS if "{id}" in each.path]
BAD_FORMS = [form for form in ID_FORMS if form != "in capitals"]
ITEMS = ("an unknown id", "another organization's id", "x", *(f"an own id {form}" for form in BAD_FORMS))
MADE_FOR_WRONG_KEYS = ("no key", "an unknown key", "another scheme", "a key with more behind it", "an empty key")


def _somewhere(operation: Operation, item: str = NO_ID) -> str:
    return operation.path.replace("{id}", item)


def test_the_document_has_these_operations(server: Server) -> None:
    described = server.published.operations - {("GET", "/openapi.json")}
    assert described == {(each.method, each.path) for each in (*OPERATIONS, *OPERATORS)}


@pytest.mark.parametrize("header", MADE_FOR_WRONG_KEYS)
@pytest.mark.parametrize("operation", [*OPERATIONS, *OPERATORS], ids=str)
def test_without_a_valid_key_it_is_401(server: Server, world: World, operation: Operation, header: str) -> None:
    key = world.client.key
    headers = {
        "no key": {},
        "an unknown key": {"Authorization": "Bearer tk_00000000_x"},
        "another scheme": {"Authorization": f"Basic {key}"},
        "a key with more behind it": {"Authorization": f"Bearer {key}x"},
        "an empty key": {"Authorization": "Bearer "},
    }[header]
    client = server.client(None)
    answer = client(operation.method, _somewhere(operation), world.fill(operation.body), headers=headers)
    assert (answer.status, answer.body["error"]) == (401, "Invalid API key")
    assert [each["field"] for each in answer.body["details"]] == ["Authorization"]
    client.close()


@pytest.mark.parametrize("operation", OPERATORS, ids=str)
def test_a_key_may_not_do_what_operators_alone_may(world: World, operation: Operation) -> None:
    for item in (NO_ID, world.own["agent"], world.foreign["agent"]):
        answer = world.client(operation.method, _somewhere(operation, item), world.fill(operation.body))
        assert (answer.status, answer.body["error"]) == (403, "This needs the role operator")


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_an_unknown_query_parameter_is_400(world: World, operation: Operation) -> None:
    path = _somewhere(operation, world.own[str(operation.noun).lower()] if operation.noun else NO_ID)
    answer = world.client(operation.method, f"{path}?Limit=2&sort=name", world.fill(operation.body))
    assert (answer.status, answer.body) == (
        400,
        {
            "error": "Validation failed",
            "details": [{"field": name, "message": "Unknown parameter"} for name in ("Limit", "sort")],
        },
    )


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("operation", WITH_ID, ids=str)
def test_an_id_that_is_not_the_organizations_own_is_404(world: World, operation: Operation, item: str) -> None:
    kind = str(operation.noun).lower()
    given = {"an unknown id": NO_ID, "another organization's id": world.foreign[kind], "x": "x"}
    given |= {f"an own id {form}": ID_FORMS[form](world.own[kind]) for form in BAD_FORMS}
    answer = world.client(operation.method, _somewhere(operation, given[item]), operation.body)
    assert (answer.status, answer.body) == (404, {"error": f"{operation.noun} not found"})


@pytest.mark.parametrize("operation", [each for each in WITH_ID if each.method == "GET"], ids=str)
def test_an_id_is_found_in_capitals(world: World, operation: Operation) -> None:
    own = world.own[str(operation.noun).lower()]
    answers = [world.client("GET", _somewhere(operation, each)) for each in (own, own.upper())]
    assert [each.status for each in answers] == [200, 200]


@pytest.mark.parametrize("operation", WITH_ID, ids=str)
def test_nothing_happens_to_what_is_another_organizations(world: World, operation: Operation) -> None:
    before = _collection(world.other, operation)
    world.client(operation.method, _somewhere(operation, world.foreign[str(operation.noun).lower()]), operation.body)
    assert _collection(world.other, operation) == before != []


def _collection(client: Client, operation: Operation) -> list[dict[str, Any]]:
    """What the list shows, but for links, which are signed anew."""
    items = client("GET", f"/{operation.path.split('/')[1]}").data
    return [
        {name: value for name, value in each.items() if name not in ("recordingUrl", "sampleUrl")} for each in items
    ]


@pytest.mark.parametrize("path", PATHS)
def test_another_method_is_405_with_those_that_there_are(world: World, path: str) -> None:
    there = {each.method for each in (*OPERATIONS, *OPERATORS) if each.path == path}
    there |= {"HEAD"} if "GET" in there else set()
    for method in METHODS:
        if method not in there:
            answer = world.client(method, path.replace("{id}", NO_ID))
            expected = None if method == "HEAD" else {"error": "Method not allowed"}
            assert (answer.status, answer.body) == (405, expected)
            assert {each.strip() for each in answer.headers["Allow"].split(",")} == there


@pytest.mark.parametrize("path", ["/", "/agent", "/agents/", f"/agents/{NO_ID}/x", f"/calls/{NO_ID}/recordings", "/v1"])
def test_another_path_is_404(world: World, path: str) -> None:
    answer = world.client("GET", path)
    assert (answer.status, answer.body) == (404, {"error": "Not found"})


@pytest.mark.parametrize("operation", [*WITH_BODY, *WITHOUT_BODY], ids=str)
def test_a_body_over_the_limit_is_413(world: World, operation: Operation) -> None:
    client = world.client.with_key(world.client.key)
    length = {"Content-Length": str(operation.max_body + 1)}
    answer = client(operation.method, _somewhere(operation), content=b"", headers=length)
    assert (answer.status, set(answer.body)) == (413, {"error"})
    client.close()


@pytest.mark.parametrize("operation", [*WITH_BODY, *WITHOUT_BODY], ids=str)
def test_a_body_up_to_the_limit_is_read(world: World, operation: Operation) -> None:
    content = b"{" + b" " * (operation.max_body - 2) + b"!"
    answer = world.client(operation.method, _somewhere(operation), content=content)
    assert answer.fields == {"body"}


BAD_JSON = {
    "nothing": b"",
    "a half object": b"{",
    "two objects": b"{} {}",
    "a comma too many": b'{"name": "x",}',
    "single quotes": b"{'name': 'x'}",
    "no UTF-8": b'{"name": "\xff"}',
    "half a surrogate pair": b'{"name": "\\ud800"}',
    "an endless array": b'{"name": ' + b"[" * 5000,
    "an array": b"[]",
    "a string": b'"x"',
    "null": b"null",
}


@pytest.mark.parametrize("content", BAD_JSON.values(), ids=BAD_JSON.keys())
@pytest.mark.parametrize("operation", WITH_BODY, ids=str)
def test_a_body_that_is_no_json_object_is_400(world: World, operation: Operation, content: bytes) -> None:
    answer = world.client(operation.method, _somewhere(operation), content=content)
    assert answer.fields == {"body"}
    assert len(answer.body["details"]) == 1


@pytest.mark.parametrize("operation", WITHOUT_BODY, ids=str)
def test_where_nothing_is_asked_for_nothing_is_taken(world: World, operation: Operation) -> None:
    for content in (None, b"", b" \n", b"{}"):
        assert world.client(operation.method, _somewhere(operation), content=content).status == 404
    for label, content in BAD_JSON.items():
        if label != "nothing":
            answer = world.client(operation.method, _somewhere(operation), content=content)
            assert answer.fields == {"body"}, label
    assert world.client(operation.method, _somewhere(operation), {"unheardOf": 1}).fields == {"unheardOf"}


@pytest.mark.parametrize(
    "operation", [each for each in WITH_ID if each.method in ("POST", "PATCH") or each.lists], ids=str
)
def test_an_id_that_is_none_is_looked_at_as_late_as_one_that_is_unknown(world: World, operation: Operation) -> None:
    for item in ("x", NO_ID):
        path = _somewhere(operation, item)
        if operation.lists:
            assert world.client(operation.method, f"{path}?limit=x").fields == {"limit"}
        else:
            assert world.client(operation.method, path, {"unheardOf": 1}).fields >= {"unheardOf"}
            assert world.client(operation.method, path, content=b"{").fields == {"body"}


@pytest.fixture(scope="module")
def spent(server: Server) -> Client:
    """A client whose rate is used up."""
    _, client = server.organization(requests_per_minute=1)
    assert client("GET", "/voices").status == 200
    return client


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_over_the_rate_it_is_429(spent: Client, world: World, operation: Operation) -> None:
    answer = spent(operation.method, _somewhere(operation), world.fill(operation.body))
    assert (answer.status, answer.body["error"]) == (429, "Rate limit exceeded")
    assert set(answer.body) == {"error", "retryAfter"}
    assert 1 <= answer.body["retryAfter"] <= 60
    assert int(answer.headers["Retry-After"]) == answer.body["retryAfter"]


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if not each.streams], ids=str)
def test_a_success_has_its_status_and_envelope(world: World, operation: Operation) -> None:
    kind = "" if operation.noun is None else operation.noun.lower()
    kind = operation.uses_up or kind
    used_up = operation.method == "DELETE" or operation.uses_up
    item = world.spare(kind) if used_up else world.own.get(kind, "")
    answer = world.client(operation.method, _somewhere(operation, item), world.fill(operation.body))
    assert answer.status == operation.status
    if operation.method == "DELETE":
        assert answer.body == {"data": {"id": item, "deleted": True}}
    elif answer.headers.get_content_type() == "application/json":
        assert set(answer.body) == set(operation.envelope)


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.method == "POST"], ids=str)
def test_the_same_key_gives_the_same_response(world: World, operation: Operation) -> None:
    item = world.spare(operation.uses_up) if operation.uses_up else world.own.get(str(operation.noun).lower(), "")
    key = {"Idempotency-Key": f"again {operation}".replace(" ", "-")}
    answers = [
        world.client(operation.method, _somewhere(operation, item), body, headers=key)
        for body in (world.fill(operation.body), world.fill(operation.body), {"unheardOf": 1})
    ]
    assert [each.status for each in answers] == [answers[0].status] * 3
    assert [each.content for each in answers] == [answers[0].content] * 3
    assert [each.headers["Idempotent-Replay"] for each in answers] == [None, "true", "true"]


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 256, "a\tb"])
@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.method == "POST"], ids=str)
def test_a_malformed_idempotency_key_is_400(world: World, operation: Operation, key: str) -> None:
    item = world.own.get(str(operation.noun).lower(), "")
    answer = world.client(operation.method, _somewhere(operation, item), headers={"Idempotency-Key": key})
    assert answer.fields == {"Idempotency-Key"}


@pytest.mark.parametrize("key", ["!", "~", "x" * 255])
def test_an_idempotency_key_is_1_to_255_visible_characters(world: World, key: str) -> None:
    answer = world.client("POST", "/agents", {"name": "Anna"}, headers={"Idempotency-Key": key})
    assert answer.status == 201
