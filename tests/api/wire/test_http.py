"""HTTP of clients and proxies, and the headers of every response."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tests.api.wire.conftest import RATE_HEADERS, Live, Serve

ALWAYS = {
    "server": "trunkline",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "private, no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
}
LOST = "00000000-0000-4000-8000-000000000000"


async def test_head_is_get_without_the_body(live: Live) -> None:
    wire = await live.connect()
    got = await wire.ask(live.head("GET", "/v1/agents"))
    await wire.send(live.head("HEAD", "/v1/agents"))
    headed = await wire.answer(to="HEAD")
    assert (headed.status, headed.headers["content-length"]) == (200, str(len(got.body)))
    await wire.send(live.head("HEAD", "/healthz"))
    assert (await wire.answer(to="HEAD")).status == 200
    assert (await wire.ask(live.head("GET", "/healthz"))).status == 200


async def test_http_1_0_works(live: Live) -> None:
    wire = await live.connect()
    answer = await wire.ask(f"GET /v1/agents HTTP/1.0\r\nAuthorization: Bearer {live.api.key}\r\n\r\n".encode())
    assert (answer.status, answer.json["data"]) == (200, [])
    assert await wire.ended()


async def test_pipelined_requests_are_answered_in_order(live: Live) -> None:
    wire = await live.connect()
    await wire.send(b"".join(live.post(b'{"name": "%d"}' % number) for number in range(50)))
    assert [(await wire.answer()).json["data"]["name"] for _ in range(50)] == [str(number) for number in range(50)]


async def test_a_request_target_may_be_an_absolute_url(live: Live) -> None:
    wire = await live.connect()
    assert (await wire.ask(live.head("GET", "http://x/v1/agents"))).status == 200


async def test_a_request_in_several_segments_is_parsed(live: Live) -> None:
    wire = await live.connect()
    whole = live.post(b'{"name": "Anna"}')
    assert (await wire.ask(*[whole[start : start + 3] for start in range(0, len(whole), 3)])).status == 201


async def test_a_connection_is_kept_alive_unless_the_client_closes_it(live: Live) -> None:
    wire = await live.connect()
    assert "connection" not in (await wire.ask(live.head("GET", "/v1/agents"))).headers
    answer = await wire.ask(live.head("GET", "/v1/agents", "Connection: close"))
    assert answer.headers["connection"] == "close"
    assert await wire.ended()


async def test_an_upgrade_is_ignored(live: Live) -> None:
    wire = await live.connect()
    answer = await wire.ask(live.head("GET", "/v1/agents", "Upgrade: websocket", "Connection: Upgrade"))
    assert answer.status == 200
    assert (await wire.ask(live.head("GET", "/v1/agents"))).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/agents", 200),
        ("GET", "/v1/openapi.json", 200),
        ("GET", f"/v1/agents/{LOST}", 404),
        ("GET", "/nothing", 404),
        ("OPTIONS", "/v1/agents", 405),
        ("OPTIONS", "*", 404),
        ("POST", "/v1/agents", 400),
        ("GET", "/healthz", 200),
    ],
)
async def test_every_response_has_the_security_headers(live: Live, method: str, path: str, status: int) -> None:
    wire = await live.connect()
    answer = await wire.ask(live.head(method, path, "Content-Length: 0"))
    assert answer.status == status
    assert answer.headers.items() >= ALWAYS.items()
    assert "strict-transport-security" not in answer.headers
    assert (answer.headers.keys() >= RATE_HEADERS) is (path != "/healthz")
    assert "x-request-id" in answer.headers


async def test_a_response_may_have_a_policy_of_its_own(serve: Serve) -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="page", headers={"content-security-policy": "default-src 'self'"})

    live = await serve({"/page": page})
    answer = await (await live.connect()).ask(live.head("GET", "/page"))
    assert answer.text.lower().count("content-security-policy") == 1
    assert answer.headers["content-security-policy"] == "default-src 'self'"
    assert answer.headers["x-frame-options"] == "DENY"


async def test_an_error_outside_of_the_application_is_a_500_without_a_traceback(serve: Serve) -> None:
    async def no_response(_request: web.Request) -> Any:
        return None

    live = await serve({"/fault": no_response})
    with capture_logs() as logs:
        answer = await (await live.connect()).ask(live.head("GET", "/fault"))
    assert (answer.status, answer.json) == (500, {"error": "Internal server error"})
    assert len([each for each in logs if each["event"] == "api.request_failed" and each["exc_info"]]) == 1


async def test_without_the_setting_no_page_may_use_the_api(live: Live) -> None:
    wire = await live.connect()
    page = "Origin: https://page.example"
    preflight = await wire.ask(live.head("OPTIONS", "/v1/agents", page, "Access-Control-Request-Method: GET"))
    assert (preflight.status, preflight.headers["allow"]) == (405, "GET,HEAD,POST")
    answer = await wire.ask(live.head("GET", "/v1/agents", page))
    for text in (preflight.text, answer.text):
        assert "access-control" not in text.lower()
