"""One log line for each request, and its id on every line of the request."""

from __future__ import annotations

import io
import json
from typing import Any

import structlog
from aiohttp import web

from tests.api.wire.conftest import Live, Serve


def _lines(log_text: io.StringIO, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log_text.getvalue().splitlines()]
    return [line for line in lines if line["event"] == event]


async def test_a_request_is_one_log_line(live: Live, log_text: io.StringIO) -> None:
    wire = await live.connect()
    answer = await wire.ask(live.head("GET", "/v1/agents?search=hush-query", "X-Request-Id: ours.1"))
    (line,) = _lines(log_text, "api.request")
    assert line.pop("ms") >= 0
    assert line.pop("timestamp")
    assert line == {
        "event": "api.request",
        "level": "info",
        "request_id": "ours.1",
        "method": "GET",
        "path": "/v1/agents",
        "status": 200,
        "bytes": len(answer.body),
        "client": "127.0.0.1",
        "organization_id": live.api.organization_id,
    }
    assert "hush" not in log_text.getvalue()


async def test_health_requests_are_logged_at_debug(live: Live, log_text: io.StringIO) -> None:
    wire = await live.connect()
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await wire.ask(live.head("GET", path))).status == 200
    assert [line["level"] for line in _lines(log_text, "api.request")] == ["debug"] * 3


async def test_a_path_is_logged_with_its_escapes_and_shortened(live: Live, log_text: io.StringIO) -> None:
    wire = await live.connect()
    await wire.ask(live.head("GET", "/v1/agents/%0a%1b[2J"))
    await wire.ask(live.head("GET", "/v1/" + "x" * 8000))
    first, second = _lines(log_text, "api.request")
    assert first["path"] == "/v1/agents/%0a%1b[2J"
    assert second["path"] == "/v1/" + "x" * 196


async def test_request_ids_differ_and_are_on_every_log_line_of_the_request(serve: Serve, log_text: io.StringIO) -> None:
    async def handle(request: web.Request) -> web.Response:
        log = structlog.get_logger()
        log.info("on.the_loop")
        await live.api.services.database.write(lambda _conn: log.info("on.a_database_thread"))
        return web.Response()

    live = await serve({"/handle": handle})
    wire = await live.connect()
    named = [(await wire.ask(live.head("GET", "/handle"))).headers["x-request-id"] for _ in range(3)]
    assert len(set(named)) == 3
    for event in ("on.the_loop", "on.a_database_thread", "api.request"):
        assert [line["request_id"] for line in _lines(log_text, event)] == named


async def test_log_lines_outside_of_requests_have_no_request_id(live: Live, log_text: io.StringIO) -> None:
    await (await live.connect()).ask(live.head("GET", "/v1/agents"))
    structlog.get_logger().info("outside")
    (line,) = _lines(log_text, "outside")
    assert "request_id" not in line
