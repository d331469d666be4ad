"""Error bodies of every kind of error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
import structlog
from structlog.testing import capture_logs

from storage.accounts import api_keys
from tests.api.conftest import Api
from tests.database_template import sqlite_only

BAD_BODY = {"error": "Validation failed", "details": [{"field": "body", "message": "Must be valid JSON"}]}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b'{"name": "x",}',
        b"{'name': 'x'}",
        b'{"name": "\\ud800"}',
        b'{"name": "x"} y',
        b'{"metadata": ' + b"[" * 5000,
        b'{"name": "x", "metadata": ' + b"9" * 5000 + b"}",
    ],
)
async def test_bad_json_is_one_problem_with_the_body(api: Api, body: bytes) -> None:
    assert await api("POST", "/agents", data=body) == (400, BAD_BODY)


@pytest.mark.parametrize("body", [[], "x", 1, True, [{}]])
async def test_a_body_that_is_not_an_object_is_a_problem_with_the_body(api: Api, body: Any) -> None:
    status, answer = await api("POST", "/agents", body)
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["body"])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_are_finite_everywhere(api: Api, number: str) -> None:
    body = f'{{"name": "x", "voiceSpeed": {number}}}'.encode()
    status, answer = await api("POST", "/agents", data=body)
    assert (status, answer["details"][0]["field"]) == (400, "voiceSpeed")
    body = f'{{"number": "100", "provider": "sip", "metadata": {{"a": [{{"b": {number}}}]}}}}'.encode()
    status, answer = await api("POST", "/phone-numbers", data=body)
    assert (status, answer["details"][0]["field"]) == (400, "metadata")


async def test_a_body_over_the_limit_is_413_with_and_without_a_length(api: Api) -> None:
    large = b'{"name": "' + b"x" * 1024 * 1024 + b'"}'

    async def pieces() -> Any:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    for data in (large, pieces()):
        assert await api("POST", "/agents", data=data) == (413, {"error": "Request body is too large"})


async def test_a_body_up_to_the_limit_is_read(api: Api) -> None:
    exact = b'{"name": "x"}'
    status, _ = await api("POST", "/agents", data=exact + b" " * (1024 * 1024 - len(exact)))
    assert status == 201


@pytest.mark.parametrize("path", ["/", "/nothing", "/agents/", "/agents/x/y", "/calls/x/recordings", "/%00"])
async def test_an_unknown_route_is_404(api: Api, path: str) -> None:
    assert await api("GET", path) == (404, {"error": "Not found"})


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/agents", {"GET", "HEAD", "POST"}),
        ("PUT", "/agents/x", {"GET", "HEAD", "PATCH", "DELETE"}),
        ("PATCH", "/calls", {"GET", "HEAD", "POST"}),
        ("GET", "/knowledge/search", {"POST"}),
        ("POST", "/openapi.json", {"GET", "HEAD"}),
        ("PROPFIND", "/voices", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_405_with_the_allowed_methods(
    api: Api, method: str, path: str, allow: set[str]
) -> None:
    response = await api.raw(method, path)
    assert (response.status, await response.json()) == (405, {"error": "Method not allowed"})
    assert {each.strip() for each in response.headers["Allow"].split(",")} == allow


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Basic eDp5",
        "Bearer " + "x" * 5000,
        "Bearer é",
        "{key}",
        "Bearer {key}x",
    ],
)
async def test_without_a_valid_key_every_route_is_401(module_api: Api, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.replace("{key}", module_api.key)}
    for path in ("/v1/agents", "/v1/nothing", "/v1/agents/x"):
        async with module_api.client.get(path, headers=headers) as response:
            answer = await response.json()
            assert (response.status, answer["error"]) == (401, "Invalid API key")
            (problem,) = answer["details"]
            assert (problem["field"], problem["message"]) == ("Authorization", _wrong_with(header))
            assert response.headers["WWW-Authenticate"] == "Bearer"
            assert "X-RateLimit-Limit" in response.headers


def _wrong_with(header: str | None) -> str:
    if header is None:
        return "The header is missing: send Authorization: Bearer API_KEY"
    if header.removeprefix("Bearer ") == header or not header.removeprefix("Bearer ").strip():
        return "Must be Bearer and an API key, with a space in between"
    return "This key is unknown or has been revoked"


async def test_the_scheme_bearer_is_case_insensitive(api: Api) -> None:
    async with api.client.get("/v1/agents", headers={"Authorization": f"bearer  {api.key}"}) as response:
        assert response.status == 200


async def test_a_revoked_key_is_rejected_at_once(api: Api) -> None:
    assert (await api("GET", "/agents"))[0] == 200
    (key,) = await api.services.database.read(api_keys.all_of)
    assert await api.services.database.write(lambda conn: api_keys.revoke(conn, key.id))
    status, answer = await api("GET", "/agents")
    assert (status, answer["error"]) == (401, "Invalid API key")
    assert answer["details"] == [{"field": "Authorization", "message": "This key is unknown or has been revoked"}]


async def test_the_last_use_of_a_key_is_stored_at_the_end(api: Api) -> None:
    await api("GET", "/agents")
    await api.client.close()
    (key,) = await api.services.database.read(api_keys.all_of)
    assert key.last_used_at is not None


@pytest.mark.parametrize("table", ["agents", "api_keys"])
async def test_an_unexpected_error_is_a_500_without_a_traceback(api: Api, table: str) -> None:
    await api.services.database.write(lambda conn: conn.execute(sa.text(f"ALTER TABLE {table} RENAME TO renamed")))
    with capture_logs() as logs:
        response = await api.raw("GET", "/agents")
        assert (response.status, await response.json()) == (500, {"error": "Internal server error"})
    assert "X-RateLimit-Remaining" in response.headers
    failed = [each for each in logs if each["event"] == "api.request_failed"]
    assert len(failed) == 1
    assert failed[0]["exc_info"]


@sqlite_only("no setting makes the disk seem full")
async def test_a_full_disk_is_a_503_and_nothing_is_stored_partially(api: Api) -> None:
    database = api.services.database
    pages = await database.read(lambda conn: conn.execute(sa.text("PRAGMA page_count")).scalar_one())
    await database.write(lambda conn: conn.execute(sa.text(f"PRAGMA max_page_count={pages}")))
    with capture_logs() as logs:
        response = await api.raw("POST", "/agents", {"name": "x", "systemPrompt": "x" * 32000})
        assert (response.status, await response.json()) == (503, {"error": "Service temporarily unavailable"})
    assert response.headers["Retry-After"] == "5"
    assert [each["cause"] for each in logs if each["event"] == "api.unavailable"] == ["storage: the disk is full"]
    await database.write(lambda conn: conn.execute(sa.text("PRAGMA max_page_count=1000000")))
    _, answer = await api("GET", "/agents")
    assert answer["pagination"]["total"] == 0
    assert (await api("POST", "/agents", {"name": "x", "systemPrompt": "x" * 32000}))[0] == 201


async def test_the_server_works_after_a_body_that_breaks_off(api: Api) -> None:
    address = api.client.server
    with capture_logs() as logs:
        _, writer = await asyncio.open_connection(address.host, address.port)
        head = f"POST /v1/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\nContent-Length: 100\r\n\r\n"
        writer.write(head.encode() + b"{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await api("GET", "/agents"))[0] == 200
    assert not [each for each in logs if each["log_level"] == "error"]


@pytest.mark.parametrize(("given", "is_kept"), [("abc-1.2_3", True), ("a b", False), ("x" * 65, False), ("", False)])
async def test_every_response_has_a_request_id(api: Api, given: str, is_kept: bool) -> None:
    structlog.contextvars.clear_contextvars()
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
        response = await api.raw("GET", "/agents", headers={"X-Request-Id": given})
    named = response.headers["X-Request-Id"]
    assert (named == given) is is_kept
    assert [each["request_id"] for each in logs if each["event"] == "api.request"] == [named]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
