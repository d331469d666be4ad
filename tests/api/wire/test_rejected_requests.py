"""Input that is not a valid request gets an ordinary error response; it is charged, and not logged."""

from __future__ import annotations

import asyncio
import io
import json

import pytest
from aiohttp import web

from tests.api.wire.conftest import RATE_HEADERS, Live, Serve

MARK = "hush-what-was-sent"
HOST = "Host: x\r\n"


def _get(*fields: str, target: str = "/v1/agents") -> bytes:
    return f"GET {target} HTTP/1.1\r\n{HOST}".encode() + "".join(f"{each}\r\n" for each in fields).encode() + b"\r\n"


REFUSED = {
    "TLS on the plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + MARK.encode(), 400),
    "no HTTP": (f"{MARK}\r\n\r\n".encode(), 400),
    "another protocol": (f"INVITE sip:{MARK} SIP/2.0\r\n\r\n".encode(), 400),
    "another version": (f"GET /{MARK} HTTP/3.7\r\n\r\n".encode(), 400),
    "an older version": (f"GET /{MARK} HTTP/0.9\r\n\r\n".encode(), 400),
    "a newer version": (f"GET /{MARK} HTTP/2.0\r\n{HOST}\r\n".encode(), 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "no host": (f"GET /v1/agents HTTP/1.1\r\nX: {MARK}\r\n\r\n".encode(), 400),
    "two hosts": (_get(f"Host: {MARK}"), 400),
    "a field without a colon": (_get(MARK), 400),
    "a space before the colon": (_get(f"{MARK} : x"), 400),
    "a folded field": (_get("X: y", f" {MARK}"), 400),
    "NUL in a field": (_get(f"X: {MARK}\x00"), 400),
    "a length and chunks": (_get("Content-Length: 5", f"X: {MARK}", "Transfer-Encoding: chunked"), 400),
    "two lengths": (_get("Content-Length: 5", "Content-Length: 6", f"X: {MARK}"), 400),
    "a negative length": (_get(f"X: {MARK}", "Content-Length: -1"), 400),
    "a length in words": (_get(f"Content-Length: {MARK}"), 400),
    "another coding": (_get(f"X: {MARK}", "Transfer-Encoding: gzip"), 400),
    "a space in the target": (_get(target=f"/v1/{MARK} x"), 400),
    "bytes in the target": (_get(target=f"/v1/agents/{MARK}é"), 400),
    "a target without a slash": (_get(target=f"v1/{MARK}"), 400),
    "a foreign scheme without a host": (_get(target=f"http:///{MARK}"), 400),
    "an unfinished address": (_get(target=f"http://[{MARK}/"), 400),
    "a long target": (_get(target=f"/v1/{MARK}" + "x" * 8192), 414),
    "a long query": (_get(target=f"/v1/agents?search={MARK}" + "x" * 8192), 414),
    "a long field": (_get(f"Authorization: Bearer {MARK}" + "x" * 8192), 431),
    "a long name": (_get(MARK + "x" * 8192 + ": y"), 431),
    "many fields": (_get(*[f"X-{number}: {MARK}" for number in range(100)]), 431),
    "a large head": (_get(*[f"X-{number}: {MARK}" + "x" * 8000 for number in range(9)])[:-2], 431),
}


@pytest.mark.parametrize(("sent", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_rejected_request_gets_an_ordinary_error_response(
    live: Live, log_text: io.StringIO, sent: bytes, status: int
) -> None:
    wire = await live.connect()
    for start in range(0, len(sent), 16384):
        await wire.send(sent[start : start + 16384])
    answer = await wire.answer()
    assert (answer.status, list(answer.json)) == (status, ["error"])
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers.keys() >= RATE_HEADERS
    assert await wire.ended()
    assert await live.agents() == 0
    lines = [json.loads(line) for line in log_text.getvalue().splitlines()]
    request_lines = [line for line in lines if line["event"] == "api.request" and line["status"] == status]
    assert [line["request_id"] for line in request_lines] == [answer.headers["x-request-id"]]
    assert not [line for line in lines if line["level"] in ("warning", "error")]
    for words in (answer.text, answer.body.decode(), log_text.getvalue()):
        assert MARK not in words


async def test_rejected_requests_count_against_the_rate_limit_of_the_address(serve: Serve) -> None:
    live = await serve(limits={"requests_per_minute": 2})
    remaining = []
    for _ in range(3):
        answer = await (await live.connect()).ask(b"nonsense\r\n\r\n")
        remaining.append((answer.status, answer.headers["x-ratelimit-remaining"]))
    assert remaining == [(400, "1"), (400, "0"), (429, "0")]
    assert answer.headers["retry-after"] == str(answer.json["retryAfter"])


async def test_a_running_request_is_answered_before_a_rejected_one(serve: Serve) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        begun.set()
        await go_on.wait()
        return web.Response(text="done")

    live = await serve({"/slow": slow})
    wire, later = await live.connect(), await live.connect()
    await wire.send(live.head("GET", "/slow"))
    await begun.wait()
    await wire.send(b"nonsense\r\n\r\n" + live.head("GET", "/slow"))
    # This response shows that the malformed bytes have been received, too.
    assert (await later.ask(live.head("GET", "/v1/agents"))).status == 200
    go_on.set()
    assert [(await wire.answer()).status, (await wire.answer()).status] == [200, 400]
    assert await wire.ended()


async def test_a_client_that_sends_far_too_much_can_still_read_the_error(live: Live) -> None:
    wire = await live.connect()
    await wire.send(b"GET / HTTP/1.1\r\nX: ", *[b"x" * 65536] * 64)
    assert (await wire.answer()).status == 431
    assert await wire.ended()
