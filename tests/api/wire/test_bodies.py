"""Bodies: size, timeouts, malformed chunks, `Expect`."""

from __future__ import annotations

import asyncio
import gzip
import io

import pytest
from aiohttp import web

from api.routing.validation import read_body
from api.schemas.bounds import MIB
from api.serving.http_server import LINGER_S
from tests.api.wire.conftest import RATE_HEADERS, Live, Serve

SOON_S = 0.05
UPLOAD = 28 * MIB
AGENT = b'{"name": "Anna"}'
TOO_LARGE = {"error": "Request body is too large"}
UNREADABLE = {"error": "Validation failed", "details": [{"field": "body", "message": "The body cannot be read"}]}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _measure_upload(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await read_body(request, UPLOAD))))


async def _measure(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await read_body(request, MIB))))


async def _hang(_request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_content_length_over_the_limit_is_rejected_before_the_body_is_sent(live: Live) -> None:
    wire = await live.connect()
    answer = await wire.ask(live.head("POST", "/v1/agents", f"Content-Length: {MIB + 1}"))
    assert (answer.status, answer.json) == (413, TOO_LARGE)
    assert answer.headers.keys() >= RATE_HEADERS


async def test_a_chunked_body_is_rejected_as_soon_as_it_is_over_the_limit(live: Live) -> None:
    wire = await live.connect()
    await wire.send(live.head("POST", "/v1/agents", "Transfer-Encoding: chunked"), *[_chunk(bytes(2**16))] * 17)
    answer = await wire.answer()
    assert (answer.status, answer.json) == (413, TOO_LARGE)


async def test_a_chunked_body_up_to_the_limit_is_read(live: Live) -> None:
    wire = await live.connect()
    parts = [_chunk(AGENT[:5]), _chunk(AGENT[5:] + b" " * (MIB - len(AGENT))), b"0\r\n\r\n"]
    assert (await wire.ask(live.head("POST", "/v1/agents", "Transfer-Encoding: chunked"), *parts)).status == 201


async def test_the_connection_is_usable_after_a_body_that_is_too_large(live: Live) -> None:
    wire = await live.connect()
    assert (await wire.ask(live.post(bytes(MIB + 1)))).status == 413
    assert (await wire.ask(live.post(AGENT))).status == 201


async def test_uploads_have_a_limit_of_their_own(serve: Serve) -> None:
    live = await serve({"/upload": _measure_upload})
    wire = await live.connect()
    whole = [bytes(MIB)] * 28
    answer = await wire.ask(live.head("POST", "/upload", f"Content-Length: {UPLOAD}"), *whole)
    assert (answer.status, answer.body) == (200, str(UPLOAD).encode())
    assert (await wire.ask(live.head("POST", "/upload", f"Content-Length: {UPLOAD + 1}"))).status == 413


async def test_bytes_beyond_the_content_length_are_not_part_of_the_body(live: Live) -> None:
    wire = await live.connect()
    answer = await wire.ask(live.head("POST", "/v1/agents", f"Content-Length: {len(AGENT)}"), AGENT)
    assert (answer.status, answer.json["data"]["name"]) == (201, "Anna")
    assert (await wire.ask(b"and more\r\n\r\n")).status == 400
    assert await wire.ended()


async def test_a_body_that_comes_too_slowly_is_408_and_ends_the_connection(serve: Serve) -> None:
    live = await serve(body_timeout_s=SOON_S)
    wire = await live.connect()
    answer = await wire.ask(live.head("POST", "/v1/agents", "Content-Length: 100"), b"{")
    assert (answer.status, answer.json) == (408, {"error": "The request body came too slowly"})
    assert answer.headers["connection"] == "close"
    assert answer.headers.keys() >= RATE_HEADERS
    async with asyncio.timeout(LINGER_S / 2):
        assert await wire.ended()
    assert await live.agents() == 0


async def test_a_body_that_trickles_gets_no_extra_time(serve: Serve) -> None:
    live = await serve(body_timeout_s=SOON_S)
    wire = await live.connect()
    await wire.send(live.head("POST", "/v1/agents", "Transfer-Encoding: chunked"))
    answer = asyncio.ensure_future(wire.answer())
    async with asyncio.timeout(10):
        while not answer.done():
            wire.writer.write(_chunk(b" "))
            await asyncio.wait((answer,), timeout=SOON_S / 10)
    assert (await answer).status == 408


async def test_an_upload_may_take_four_times_as_long(serve: Serve) -> None:
    live = await serve({"/upload": _measure_upload, "/small": _measure}, body_timeout_s=0.3)
    upload, small = await live.connect(), await live.connect()
    await upload.send(live.head("POST", "/upload", "Content-Length: 2"), b"{")
    assert (await small.ask(live.head("POST", "/small", "Content-Length: 2"), b"{")).status == 408
    answer = await upload.ask(b"}")
    assert (answer.status, answer.body) == (200, b"2")


async def test_an_upload_has_a_timeout(serve: Serve) -> None:
    live = await serve({"/upload": _measure_upload}, body_timeout_s=SOON_S)
    wire = await live.connect()
    assert (await wire.ask(live.head("POST", "/upload", "Content-Length: 2"), b"{")).status == 408


async def test_receiving_the_body_does_not_count_against_the_request_timeout(serve: Serve) -> None:
    live = await serve({"/hang": _hang}, request_timeout_s=0.5)
    wire, other = await live.connect(), await live.connect()
    await wire.send(live.head("POST", "/v1/agents", f"Content-Length: {len(AGENT)}"), AGENT[:1])
    assert (await other.ask(live.head("GET", "/hang"))).status == 503
    assert (await wire.ask(AGENT[1:])).status == 201


MALFORMED = [b"zz\r\n{}\r\n", b"2\r\n{}xx", b"2;\x00\r\n{}\r\n", b"ffffffffffffffffff\r\n"]


@pytest.mark.parametrize("malformed", MALFORMED)
async def test_malformed_chunks_are_a_problem_with_the_body(live: Live, malformed: bytes) -> None:
    wire = await live.connect()
    head = live.head("POST", "/v1/agents", "Transfer-Encoding: chunked", "Expect: 100-continue")
    assert (await wire.ask(head)).status == 100
    answer = await wire.ask(_chunk(b"{"), malformed)
    assert (answer.status, answer.json) == (400, UNREADABLE)
    assert answer.headers.keys() >= RATE_HEADERS
    assert await wire.ended()


@pytest.mark.parametrize("malformed", MALFORMED)
async def test_a_head_followed_by_malformed_chunks_is_a_bad_request(live: Live, malformed: bytes) -> None:
    wire = await live.connect()
    answer = await wire.ask(live.head("POST", "/v1/agents", "Transfer-Encoding: chunked") + _chunk(b"{") + malformed)
    assert (answer.status, answer.json) == (400, {"error": "Bad request"})
    assert await wire.ended()


@pytest.mark.parametrize(("broken", "status"), [("Content-Length: 100", 408), ("Transfer-Encoding: chunked", 400)])
async def test_a_body_that_timed_out_may_be_repeated_with_its_idempotency_key(
    serve: Serve, broken: str, status: int
) -> None:
    live = await serve(body_timeout_s=SOON_S)
    again = "Idempotency-Key: order-1"
    wire = await live.connect()
    assert (await wire.ask(live.head("POST", "/v1/agents", broken, again, "Expect: 100-continue"))).status == 100
    assert (await wire.ask(b"1\r\n{zz\r\n")).status == status
    answer = await (await live.connect()).ask(live.post(AGENT, again))
    assert (answer.status, "idempotent-replay" in answer.headers) == (201, False)


async def test_a_body_that_broke_off_may_be_repeated_with_its_idempotency_key(
    live: Live, log_text: io.StringIO
) -> None:
    again = "Idempotency-Key: order-1"
    wire = await live.connect()
    await wire.send(live.head("POST", "/v1/agents", "Content-Length: 100", again), b"{")
    wire.writer.close()
    answer = await (await live.connect()).ask(live.post(AGENT, again))
    assert (answer.status, "idempotent-replay" in answer.headers) == (201, False)
    assert '"error"' not in log_text.getvalue()


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "br", "identity, gzip", "identity\r\nContent-Encoding: gzip"])
async def test_a_compressed_body_is_rejected_with_the_name_of_the_header(live: Live, coding: str) -> None:
    wire = await live.connect()
    answer = await wire.ask(live.post(gzip.compress(AGENT), f"Content-Encoding: {coding}"))
    assert (answer.status, answer.json["details"][0]["field"]) == (400, "Content-Encoding")
    assert (await wire.ask(live.post(AGENT, "Content-Encoding: Identity"))).status == 201


async def test_a_client_that_expects_100_continue_gets_it(live: Live) -> None:
    wire = await live.connect()
    await wire.send(live.head("POST", "/v1/agents", f"Content-Length: {len(AGENT)}", "Expect: 100-continue"))
    assert (await wire.answer()).status == 100
    assert (await wire.ask(AGENT)).status == 201


async def test_a_client_that_does_not_wait_for_100_continue_gets_one_response(live: Live) -> None:
    wire = await live.connect()
    assert (await wire.ask(live.post(AGENT, "Expect: 100-continue"))).status == 201


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"POST /v1/agents HTTP/1.1\r\nAuthorization: Bearer KEY\r\nContent-Length: {MIB + 1}", 413),
        ("POST /v1/agents HTTP/1.1\r\nContent-Length: 5", 401),
        ("POST /v1/nothing HTTP/1.1\r\nAuthorization: Bearer KEY\r\nContent-Length: 5", 404),
        ("PUT /v1/agents HTTP/1.1\r\nAuthorization: Bearer KEY\r\nContent-Length: 5", 405),
    ],
)
async def test_a_client_that_expects_100_continue_is_rejected_before_it_sends_the_body(
    live: Live, head: str, status: int
) -> None:
    wire = await live.connect()
    head = f"{head}\r\nHost: x\r\nExpect: 100-continue\r\n\r\n".replace("KEY", live.api.key)
    answer = await wire.ask(head.encode())
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    async with asyncio.timeout(LINGER_S / 2):
        assert await wire.ended()


async def test_an_unknown_expectation_is_ignored(live: Live) -> None:
    wire = await live.connect()
    assert (await wire.ask(live.post(AGENT, "Expect: miracles"))).status == 201
    assert (await wire.ask(live.head("GET", "/v1/nothing", "Expect: miracles"))).status == 404
