"""The request timeout ends a handler that hangs, and does not apply to downloads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web
from structlog.testing import capture_logs

from tests.api.wire.conftest import RATE_HEADERS, Serve

WORK_S = 0.5
"""Seconds that suffice for everything but a handler that hangs, also on a busy machine."""


async def _hang(_request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_handler_that_hangs_is_503_and_the_server_works_on(serve: Serve) -> None:
    live = await serve({"/hang": _hang}, request_timeout_s=WORK_S)
    wire = await live.connect()
    with capture_logs() as logs:
        answer = await wire.ask(live.head("GET", "/hang"))
    assert (answer.status, answer.json) == (503, {"error": "The request took too long"})
    assert answer.headers["retry-after"] == "5"
    assert answer.headers.keys() >= RATE_HEADERS
    assert [each["cause"] for each in logs if each["event"] == "api.unavailable"] == ["The request took too long"]
    assert (await wire.ask(live.head("GET", "/v1/agents"))).status == 200


async def test_a_timeout_error_of_a_handler_is_not_the_request_timeout(serve: Serve) -> None:
    async def broken(_request: web.Request) -> web.Response:
        raise TimeoutError

    live = await serve({"/broken": broken})
    answer = await (await live.connect()).ask(live.head("GET", "/broken"))
    assert (answer.status, answer.json) == (500, {"error": "Internal server error"})


async def test_a_download_may_take_longer_than_the_request_timeout(serve: Serve, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(2**24))

    async def download(_request: web.Request) -> web.StreamResponse:
        return web.FileResponse(large)

    live = await serve({"/download": download, "/hang": _hang}, request_timeout_s=WORK_S)
    wire, other = await live.connect(limit=2**10), await live.connect()
    await wire.send(live.head("GET", "/download"))
    assert (await other.ask(live.head("GET", "/hang"))).status == 503
    assert len((await wire.answer()).body) == 2**24
