"""HTTP tools against a real server on loopback."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from cryptography.fernet import Fernet
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.concurrency import HttpEgressConcurrency
from calls.tools.http_response import MASK, MAX_CHARACTERS, MAX_DEPTH, MAX_ERROR_CHARACTERS, TOO_DEEP, TRUNCATED
from calls.tools.http_tool import MAX_RESPONSE_BYTES, CallContext, HttpTool, ToolHttpAccess
from calls.tools.recorded_tool_call import recorded_arguments, recorded_result
from calls.tools.toolset import ToolResult, ToolSet
from config.secrets import Secrets
from models.protocols import ToolCall
from storage.agents.tools import Method, Parameter
from tests.calls.http_server import serving
from tests.calls.tools.tool_server import http_tools, tool_server

KEY = "Bearer hush-hush-token"
DAY: Parameter = {"name": "day", "type": "string", "description": "As 2026-11-21", "required": True}
GUESTS: Parameter = {"name": "guests", "type": "array", "description": "", "required": False}


async def answered(answer: web.Response) -> ToolResult:
    """Returns the result for the model."""
    async with tool_server(answer) as server, http_tools() as calling:
        return await calling.tool(server.origin).run({})


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_parameters_go_into_the_query_of_requests_without_a_body(method: Method) -> None:
    async with tool_server() as server, http_tools() as calling:
        result = await calling.tool(f"{server.origin}/berths?k=1", method, body=[DAY]).run(
            {"day": "1 & 2", "n": [1, 2]}
        )
    assert result == ToolResult('{"free":3}', ok=True)
    ((asked_with, path, headers, body),) = server.asked
    assert (asked_with, path, body) == (method, "/berths?k=1&day=1%20%26%202&n=1&n=2", b"")
    assert "Content-Type" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_parameters_go_into_the_json_body_of_other_requests(method: Method) -> None:
    async with tool_server() as server, http_tools() as calling:
        result = await calling.tool(f"{server.origin}/berths", method).run({"day": "Öd", "guests": [{"a": True}]})
    assert result.ok
    ((asked_with, path, headers, body),) = server.asked
    assert (asked_with, path, headers["Content-Type"]) == (method, "/berths", "application/json")
    assert json.loads(body) == {"day": "Öd", "guests": [{"a": True}]}


async def test_only_get_is_without_effects() -> None:
    methods: list[Method] = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    async with http_tools() as calling:
        effects = [calling.tool("http://h.example/", method).has_effects for method in methods]
    assert effects == [False, True, True, True, True]


async def test_variables_of_the_call_fill_the_address_and_the_headers() -> None:
    async with tool_server() as server, http_tools(who="Ann/Bob", key="s3cret-token", host="127.0.0.1") as calling:
        port = server.origin.rpartition(":")[2]
        url = f"http://{{{{host}}}}:{port}/{{{{who}}}}?for={{{{who}}}}"
        await calling.tool(url, headers=[("Authorization", "Bearer {{key}}")]).run({})
    ((_, path, headers, _),) = server.asked
    assert path == "/Ann%2FBob?for=Ann%2FBob"
    assert headers["Authorization"] == "Bearer s3cret-token"


async def test_a_request_whose_variable_would_change_the_host_is_not_sent() -> None:
    async with tool_server() as server, http_tools(id="..") as calling:
        with capture_logs() as logs:
            result = await calling.tool(f"{server.origin}/orders/{{{{id}}}}", "DELETE").run({})
    assert server.asked == []
    assert not result.ok
    assert result.content.startswith("The request was not sent: a variable in the path")
    assert [each["outcome"] for each in logs] == ["unfillable"]


@pytest.mark.parametrize("path", ["/day", "/{{id}}"], ids=["a request", "no request"])
@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("no_such_tool", {"day": "s3cret-token", "note": "use s3cret-token or hush-hush"}),
        ("s3cret-token", {"day": "hush-hush"}),
        ("free_berths", {"day": "1", "s3cret-token": "hush-hush"}),
        ("free_berths", {"note": ["s3cret-token"]}),
    ],
    ids=["unknown tool", "secret as a name", "unknown parameter", "missing parameter"],
)
async def test_the_secrets_of_a_call_that_is_not_run_are_masked_in_its_record(
    name: str, written: dict[str, Any], path: str
) -> None:
    async with http_tools(id="..", key="s3cret-token") as calling:
        url, headers = f"http://user:hush-hush@h.example{path}", [("Authorization", "Bearer {{key}}")]
        unreadable = calling.tool("http://h.example/", headers=headers, name="of_another_key")
        unreadable._stored.config["headers"][0]["value_encrypted"] = Secrets([Fernet.generate_key()]).encrypt("x")
        call = ToolCall("1", name, json.dumps(written))
        result = await ToolSet([unreadable, calling.tool(url, body=[DAY], headers=headers)]).run(call)
    kept = json.dumps([recorded_arguments(call.arguments, result.secrets), recorded_result(result.content)])
    assert not result.ok
    assert "s3cret" not in kept and "hush" not in kept and MASK in kept


async def test_the_secrets_of_a_request_that_is_not_sent_are_known() -> None:
    async with tool_server() as server, http_tools(id="..", key="s3cret-token") as calling:
        tool = calling.tool(f"{server.origin}/{{{{id}}}}", headers=[("Authorization", "Bearer {{key}}")])
        assert "s3cret-token" in (await tool.run({})).secrets


async def test_the_model_sees_the_tool_by_its_description_and_parameters() -> None:
    async with http_tools() as calling:
        definition = calling.tool("http://h.example/", body=[DAY, GUESTS]).definition
    assert (definition.name, definition.description) == ("free_berths", "Free berths")
    assert definition.parameters == {
        "type": "object",
        "properties": {
            "day": {"type": "string", "description": "As 2026-11-21"},
            "guests": {"type": "array", "items": {}},
        },
        "required": ["day"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("body", "media_type", "told"),
    [
        (b'{ "a" : [ 1, "\xc3\xa9" ] }', "application/json", '{"a":[1,"é"]}'),
        (b' {"a": 1}\n', "text/plain", '{"a":1}'),
        (b'{"a": 1', "application/json", '{"a": 1'),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "application/json", "[" * MAX_DEPTH + "]" * MAX_DEPTH),
        (b"[" * 65 + b"]" * 65, "application/json", TOO_DEEP),
        (b"[" * 30_000, "application/json", TOO_DEEP),
        (b'{"a":' * 9_000 + b"1" + b"}" * 9_000, "", TOO_DEEP),
        (b"<p>Three   <b>berths</b></p><script>no()</script><p>are free", "text/html", "Three berths\nare free"),
        (b"open\r\n \x01 9 to  5  ", "text/plain", "open\n9 to 5"),
        ("geöffnet".encode("latin-1"), "text/plain; charset=iso-8859-1", "geöffnet"),
        ("geöffnet".encode("latin-1"), "text/plain", "geöffnet"),
        ("geöffnet".encode(), "text/plain; charset=nonsense", "geöffnet"),
        (b'["\\ud800"]', "application/json", '["\ufffd"]'),
        (b"\x00\x01\x02\x03" * 9, "", "(no text: 36 bytes of type unknown)"),
        (b"\x89PNG\x00\x01\x02\x03\x00\x00", "image/png", "(no text: 10 bytes of type image/png)"),
        (b"<order><id>7</id></order>", "application/xml", "<order><id>7</id></order>"),
        (b"plain", "", "plain"),
    ],
)
async def test_the_servers_response_is_text_for_the_model(body: bytes, media_type: str, told: str) -> None:
    answer = web.Response(body=body, headers={"Content-Type": media_type})
    assert await answered(answer) == ToolResult(told, ok=True)


@pytest.mark.parametrize("status", [200, 204])
async def test_an_empty_response_is_reported_as_done(status: int) -> None:
    told = f"Done: the tool answered with status {status} and nothing else."
    assert await answered(web.Response(status=status)) == ToolResult(told, ok=True)


async def test_a_compressed_response_is_not_read() -> None:
    answer = web.Response(body=b"\x1f\x8b\x08", headers={"Content-Encoding": "gzip"})
    assert await answered(answer) == ToolResult("(an answer in an encoding that is not read: gzip)", ok=True)


@pytest.mark.parametrize(
    "size", [MAX_CHARACTERS + 1, MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES + 1, 40 * MAX_RESPONSE_BYTES]
)
async def test_a_long_response_is_truncated_with_a_note(size: int) -> None:
    result = await answered(web.Response(text="x" * size))
    assert result == ToolResult("x" * MAX_CHARACTERS + TRUNCATED, ok=True)


async def test_a_response_of_exactly_the_limit_is_complete() -> None:
    assert (await answered(web.Response(text="x" * MAX_CHARACTERS))).content == "x" * MAX_CHARACTERS


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
async def test_an_error_is_reported_with_its_status_and_the_beginning_of_its_text(status: int) -> None:
    result = await answered(web.Response(status=status, text="no such day " + "x" * 1000))
    said = ("no such day " + "x" * 1000)[:MAX_ERROR_CHARACTERS]
    assert result == ToolResult(f"The tool answered with status {status}. It said: {said}", ok=False)


async def test_an_error_without_text_is_reported_by_its_status() -> None:
    assert await answered(web.Response(status=500)) == ToolResult("The tool answered with status 500.", ok=False)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with tool_server() as server, http_tools() as calling:
        server.answer = web.Response(status=status, headers={"Location": f"{server.origin}/elsewhere"})
        result = await calling.tool(f"{server.origin}/here").run({})
    assert result == ToolResult(f"The tool answered with status {status}. Redirects are not followed.", ok=False)
    assert [path for _, path, _, _ in server.asked] == ["/here"]


async def test_a_server_that_takes_too_long_is_a_timeout() -> None:
    async with tool_server() as server, http_tools() as calling:
        server.hold = asyncio.Event()
        with capture_logs() as logs:
            result = await calling.tool(server.origin, timeout=100).run({})
        server.hold.set()
    assert result == ToolResult("The tool did not answer within 0.1 seconds.", ok=False)
    assert [(each["outcome"], each["ms"] >= 100) for each in logs] == [("timeout", True)]


async def test_waiting_for_a_slot_counts_against_the_timeout() -> None:
    concurrency = HttpEgressConcurrency(owner_limit=1)
    async with tool_server() as server, http_tools(concurrency=concurrency) as calling, concurrency.slot("org"):
        result = await calling.tool(server.origin, timeout=100).run({})
    assert result == ToolResult("The tool did not answer within 0.1 seconds.", ok=False)
    assert server.asked == []


async def test_an_address_that_the_rules_forbid_is_not_connected_to() -> None:
    async with tool_server() as server, http_tools(HttpEgressRules()) as calling:
        with capture_logs() as logs:
            result = await calling.tool(server.origin).run({})
    assert result == ToolResult("The tool's address is not allowed on this server.", ok=False)
    assert server.asked == []
    assert [(each["outcome"], each["error"], each["log_level"]) for each in logs] == [
        ("refused", "address 127.0.0.1 is not allowed", "warning")
    ]


async def test_an_unreachable_server_is_reported_without_its_address() -> None:
    async with tool_server() as server:
        pass
    async with http_tools() as calling:
        result = await calling.tool(server.origin).run({})
    assert result == ToolResult("The tool's server could not be reached.", ok=False)


async def test_an_unknown_host_name_is_an_unreachable_server() -> None:
    async with http_tools() as calling:
        result = await calling.tool("http://nowhere.invalid/").run({})
    assert result == ToolResult("The tool's server could not be reached.", ok=False)


@pytest.mark.parametrize("kind", ["json", "html", "text", "error"])
async def test_echoed_headers_reveal_no_secret(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    quoted = 'pass"word\\ü-1234'

    async def echoes(request: web.Request) -> web.Response:
        got = dict(request.headers)
        if kind == "json":
            return web.json_response({"headers": got, "token": got["Authorization"].split()[1]})
        text = "\n".join(f"{name}: {value}" for name, value in got.items())
        media_type = "text/html" if kind == "html" else "text/plain"
        return web.Response(text=text, content_type=media_type, status=500 if kind == "error" else 200)

    async with serving(echoes) as origin, http_tools(key="variable-secret") as calling:
        url = origin.replace("http://", "http://user:url-secret@") if kind == "text" else origin
        headers = [("X-Key", "{{key}}"), ("X-Quoted", quoted)]
        tool = calling.tool(url, headers=headers if kind == "text" else [("Authorization", KEY), *headers])
        result = await tool.run({})
    told = capsys.readouterr()
    for secret in ("hush-hush", "variable-secret", "word\\", "url-secret", "dXNlcjp1cmwtc2VjcmV0"):
        assert secret not in result.content + told.out + told.err
    assert "tool.called" in told.out
    assert result.content.count("[hidden]") >= 3
    assert "trunkline" in result.content


async def test_a_malformed_response_reveals_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    async def talks_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        writer.close()

    async with await asyncio.start_server(talks_nonsense, "127.0.0.1", 0) as nonsense, http_tools() as calling:
        port = nonsense.sockets[0].getsockname()[1]
        url = f"http://name:hush-hush@127.0.0.1:{port}/?key=hush-hush"
        result = await calling.tool(url, headers=[("X-Key", "hush-hush")]).run({})
    told = capsys.readouterr()
    assert result == ToolResult("The tool's server could not be reached.", ok=False)
    assert "outcome=connection" in told.out
    assert "hush-hush" not in told.out + told.err


async def test_headers_of_another_key_file_break_the_tool_and_not_the_call() -> None:
    async with tool_server() as server, http_tools() as calling:
        tool = calling.tool(server.origin, headers=[("Authorization", KEY)])
        other = ToolHttpAccess(
            calling.http_access.client, calling.http_access.concurrency, Secrets([Fernet.generate_key()])
        )
        broken = HttpTool(tool._stored, "free_berths", CallContext("call-1", {}), other)
        result = await ToolSet([broken]).run(ToolCall("1", "free_berths", "{}"))
    assert result == ToolResult("`free_berths` does not work at the moment.", ok=False)
    assert server.asked == []


async def test_a_cancelled_request_ends_at_once_and_releases_its_slot() -> None:
    concurrency = HttpEgressConcurrency(limit=1, owner_limit=1)
    async with tool_server() as server, http_tools(concurrency=concurrency) as calling:
        server.hold = asyncio.Event()
        running = asyncio.ensure_future(calling.tool(server.origin, "POST", timeout=30_000).run({}))
        await server.arrived.wait()
        with capture_logs() as logs:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        server.hold.set()
        async with asyncio.timeout(5), concurrency.slot("another"):
            assert [(each["event"], each["outcome"]) for each in logs] == [("tool.called", "cancelled")]


@pytest.mark.parametrize(("status", "level"), [(200, "info"), (404, "info"), (302, "warning"), (500, "warning")])
async def test_only_failures_that_an_operator_can_fix_are_warnings(status: int, level: str) -> None:
    with capture_logs() as logs:
        await answered(web.Response(status=status))
    assert [(each["event"], each["log_level"]) for each in logs] == [("tool.called", level)]


async def test_each_tool_call_is_logged_and_measured() -> None:
    def count() -> float:
        return REGISTRY.get_sample_value("trunkline_tool_seconds_count", {"outcome": "status"}) or 0.0

    before = count()
    async with tool_server(web.Response(status=404, text="who asked: Ann")) as server, http_tools() as calling:
        with capture_logs() as logs:
            await calling.tool(f"{server.origin}/?k=hush", body=[DAY]).run({"day": "my birthday"})
    (line,) = logs
    assert line.pop("ms") >= 0
    assert line == {
        "event": "tool.called",
        "log_level": "info",
        "call_id": "call-1",
        "tool_id": "tool-1",
        "outcome": "status",
        "status": 404,
        "error": None,
    }
    assert count() == before + 1


async def test_a_models_tool_call_reaches_the_server_and_returns_its_response() -> None:
    async with tool_server() as server, http_tools() as calling:
        toolset = ToolSet([calling.tool(f"{server.origin}/berths", body=[DAY])])
        refused = await toolset.run(ToolCall("1", "free_berths", "{}"))
        told = await toolset.run(ToolCall("2", "free_berths", '{"day": 21}'))
    assert refused == ToolResult("`free_berths` was not called: parameter `day` is required.", ok=False)
    assert told == ToolResult('{"free":3}', ok=True)
    assert [path for _, path, _, _ in server.asked] == ["/berths?day=21"]


async def test_parameters_have_accepted_names_for_models_and_are_sent_under_their_own() -> None:
    place: Parameter = {"name": "Straße & Ort", "type": "string", "description": "", "required": True}
    async with tool_server() as server, http_tools() as calling:
        tool = calling.tool(server.origin, body=[DAY, place])
        toolset = ToolSet([tool])
        refused = await toolset.run(ToolCall("1", "free_berths", '{"day": "1"}'))
        told = await toolset.run(ToolCall("2", "free_berths", '{"day": "1", "Strae_Ort": "Kai"}'))
    assert tool.definition.parameters["properties"]["Strae_Ort"] == {"type": "string", "description": "Straße & Ort"}
    assert tool.definition.parameters["required"] == ["day", "Strae_Ort"]
    assert refused == ToolResult("`free_berths` was not called: parameter `Strae_Ort` is required.", ok=False)
    assert told.ok
    assert [path for _, path, _, _ in server.asked] == ["/?day=1&Stra%C3%9Fe%20%26%20Ort=Kai"]


async def test_the_result_names_the_secrets_that_arguments_may_repeat() -> None:
    async with tool_server(web.Response(text=KEY)) as server, http_tools() as calling:
        result = await calling.tool(server.origin, headers=[("Authorization", KEY)]).run({})
    assert KEY in result.secrets
    assert KEY not in repr(result)
