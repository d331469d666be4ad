"""CORS: pages of the configured origins may use the API from a browser, and no others."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from config.settings_tables import ApiSettings
from tests.api.wire.conftest import RATE_HEADERS, Live, Serve

PAGE = "https://page.example"
READ = {
    "content-range",
    "idempotent-replay",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-request-id",
}


@pytest.fixture
async def live(serve: Serve) -> Live:
    return await serve(cors_origins=[PAGE, "http://localhost:5173"], limits={"requests_per_minute": 5})


def _preflight(path: str, origin: str = PAGE, method: str = "POST") -> bytes:
    fields = f"Origin: {origin}\r\nAccess-Control-Request-Method: {method}\r\nAccess-Control-Request-Headers: x"
    return f"OPTIONS {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n".encode()


async def test_a_preflight_has_the_allowed_methods_and_headers(live: Live) -> None:
    wire = await live.connect()
    answer = await wire.ask(_preflight("/v1/agents"))
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST"
    allowed = {each.strip().lower() for each in answer.headers["access-control-allow-headers"].split(",")}
    assert allowed == {"authorization", "content-type", "idempotency-key", "x-request-id"}
    assert answer.headers["access-control-max-age"] == "600"
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers.keys() >= RATE_HEADERS
    assert (await wire.ask(_preflight("/v1/agents/x"))).headers["access-control-allow-methods"] == (
        "DELETE, GET, HEAD, PATCH"
    )
    assert (await wire.ask(_preflight("/v1/openapi.json"))).status == 204
    assert (await wire.ask(_preflight("/healthz"))).status == 204


async def test_a_preflight_for_an_unknown_path_is_404(live: Live) -> None:
    assert (await (await live.connect()).ask(_preflight("/v1/nothing"))).status == 401
    assert (await (await live.connect()).ask(_preflight("/nothing"))).status == 404


async def test_preflights_count_against_the_rate_limit_of_the_address(live: Live) -> None:
    wire = await live.connect()
    for _ in range(5):
        await wire.ask(_preflight("/v1/agents"))
    without_key = f"GET /v1/agents HTTP/1.1\r\nHost: x\r\nOrigin: {PAGE}\r\n\r\n".encode()
    assert (await wire.ask(without_key)).status == 429


async def test_a_preflight_over_the_rate_limit_is_still_answered(live: Live) -> None:
    wire = await live.connect()
    answers = [await wire.ask(_preflight("/v1/agents")) for _ in range(6)]
    assert [answer.status for answer in answers] == [204] * 6
    assert answers[5].headers["access-control-allow-methods"] == "GET, HEAD, POST"
    assert answers[5].headers["access-control-allow-origin"] == PAGE
    assert answers[5].headers["x-ratelimit-remaining"] == "0"
    assert (await wire.ask(_preflight("/v1/agents", "https://evil.example"))).status == 429
    assert (await wire.ask(_preflight("/v1/nothing"))).status == 429


async def test_vary_keeps_the_values_of_the_response(live: Live) -> None:
    answer = await (await live.connect()).ask(f"GET /docs HTTP/1.1\r\nHost: x\r\nOrigin: {PAGE}\r\n\r\n".encode())
    assert (answer.status, answer.headers["vary"]) == (200, "Accept-Encoding, Origin")


async def test_a_page_of_an_allowed_origin_may_read_the_response_and_its_headers(live: Live) -> None:
    wire = await live.connect()
    for head, status in (
        (live.head("GET", "/v1/agents", f"Origin: {PAGE}"), 200),
        (live.head("GET", "/v1/nothing", f"Origin: {PAGE}"), 404),
        (f"GET /v1/agents HTTP/1.1\r\nHost: x\r\nOrigin: {PAGE}\r\n\r\n".encode(), 401),
    ):
        answer = await wire.ask(head)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, PAGE)
        assert {each.strip().lower() for each in answer.headers["access-control-expose-headers"].split(",")} == READ
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", f"{PAGE}.evil.example", "http://page.example", ""])
async def test_a_page_of_another_origin_gets_no_cors_headers(live: Live, origin: str) -> None:
    wire = await live.connect()
    for request in (_preflight("/v1/agents", origin), live.head("GET", "/v1/agents", f"Origin: {origin}")):
        answer = await wire.ask(request)
        assert "access-control" not in answer.text.lower()
        assert answer.headers["vary"] == "Origin"


async def test_options_without_an_origin_is_405(live: Live) -> None:
    answer = await (await live.connect()).ask(live.head("OPTIONS", "/v1/agents"))
    assert (answer.status, answer.headers["allow"]) == (405, "GET,HEAD,POST")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("https://Page.Example/", "https://page.example"),
        ("https://page.example:443", "https://page.example"),
        ("http://page.example:80", "http://page.example"),
        ("http://page.example:443", "http://page.example:443"),
        ("http://[2001:DB8::1]:3000", "http://[2001:db8::1]:3000"),
    ],
)
def test_an_origin_is_normalized_as_browsers_send_it(written: str, meant: str) -> None:
    assert ApiSettings(cors_origins=(written,)).cors_origins == (meant,)


@pytest.mark.parametrize(
    "text",
    ["*", "null", "page.example", "https://*.page.example", "https://page.example/v1", "https://u:p@page.example",
     "ftp://page.example", "https://page.example?x", "https://page.example#x", "https://page.example:99999", ""],
)  # fmt: skip
def test_a_malformed_origin_is_rejected(text: str) -> None:
    with pytest.raises(ValidationError):
        ApiSettings(cors_origins=(text,))
