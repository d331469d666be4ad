"""Unusual paths and queries get 404 or 400, never a server error."""

from __future__ import annotations

from tests.api.wire.conftest import RATE_HEADERS, Live

LOST = "00000000-0000-4000-8000-000000000000"


TARGETS = {
    "/v1/agents%2f": 404,
    "/v1%2fagents": 404,
    f"/v1/agents%2F{LOST}": 404,
    f"/v1/agents/{LOST}%2F..": 404,
    "/v1/../v1/agents": 404,
    "/v1/%2e%2e/v1/agents": 404,
    "/v1/agents/..": 404,
    "/v1//agents": 404,
    "//v1/agents": 404,
    "/v1/agents;x=1": 404,
    "/%761/agents": 200,
    "/v1/agents/%00": 404,
    "/v1/agents/%0d%0aX-Injected:%20x": 404,
    "/v1/agents/%zz": 404,
    "/v1/agents/%": 404,
    "/v1/agents/%ff%fe": 404,
    "/v1/agents/%ed%a0%80": 404,
    "/v1/agents/" + "x" * 8000: 404,
    "/v1" + "/x" * 4000: 404,
    "/v1/agents?": 200,
    "/v1/agents?search=%00": 200,
    "/v1/agents?search=%zz": 200,
    "/v1/agents?search=%": 200,
    "/v1/agents?search=%ff%fe": 200,
    "/v1/agents?search=%ed%a0%80": 200,
    "/v1/agents?search=%f0%9f%93%9e": 200,
    "/v1/agents?search=" + "x" * 8000: 200,
    "/v1/agents?" + "a&" * 4000: 400,
    "/v1/agents?limit=1%00": 400,
    "/v1/agents?limit=%d9%a1": 400,
    "/v1/agents?limit=" + "9" * 5000: 400,
    "/v1/agents?limit=1&limit=1": 400,
    "/v1/agents?%6cimit=0": 400,
    "/v1/agents?limit=1#fragment": 200,
    "/v1/calls?from=%00": 400,
    "/v1/calls?agentId=%ff": 400,
}


async def test_an_unusual_request_target_is_not_found_or_bad_request(live: Live) -> None:
    statuses = {}
    wire = await live.connect()
    for target in TARGETS:
        answer = await wire.ask(live.head("GET", target))
        statuses[target] = answer.status
        assert answer.headers.keys() >= RATE_HEADERS
        assert "x-injected" not in answer.headers
    assert statuses == TARGETS


async def test_a_key_with_arbitrary_bytes_is_401(live: Live) -> None:
    wire = await live.connect()
    for odd in (b"\xff", b"\xed\xa0\x80", b"\xc3\xa9"):
        request = b"GET /v1/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n" % odd
        assert (await wire.ask(request)).status == 401


async def test_a_header_with_arbitrary_bytes_is_never_a_server_error(live: Live) -> None:
    wire = await live.connect()
    names = ("X-Request-Id", "Idempotency-Key", "Content-Type", "Origin", "Range", "Accept")
    statuses = [(await wire.ask(live.post(b'{"name": "Anna"}', f"{name}: \xff\xed\xa0\x80"))).status for name in names]
    assert statuses == [201, 400, 201, 201, 201, 201]
