"""Servers that hang, break off, reject and lie: each fails one response in time, with an error that names the fault."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from dataclasses import replace
from typing import Any

import pytest

from config.errors import ErrorKind, HttpEgressError
from models.errors import RemoteModelError
from models.protocols import ChatMessage, ChatPrompt, TextDelta, ToolCall
from models.remote.circuit_breaker import CircuitState
from models.remote.client import RemoteModelClient
from models.remote.config import RemoteModel
from models.remote.language_model import MAX_RESPONSE_BYTES, RemoteLanguageModel
from tests.models.remote.raw_server import (
    HEAD,
    KEY,
    QUICK,
    Answer,
    event,
    remote,
    responds_then_hangs,
    responds_then_resets,
    responds_with,
    status,
    text,
)

MANY_HEADERS = b"".join(b"X-%d: y\r\n" % number for number in range(10_000))
PROMPT = ChatPrompt("call", "You help.", [ChatMessage("user", "Hello?")])
HELLO = event(content="Hel") + event(content="lo.")


async def spoken_text(endpoint: RemoteModelClient, heard: list[str] | None = None) -> str:
    """The response's text; `heard` gets its pieces also on failure."""
    heard = [] if heard is None else heard
    async for part in RemoteLanguageModel(endpoint).respond(PROMPT):
        assert isinstance(part, TextDelta)
        heard.append(part.text)
    return "".join(heard)


async def error_of(endpoint: RemoteModelClient, heard: list[str] | None = None) -> RemoteModelError:
    with pytest.raises(RemoteModelError) as raised:
        await spoken_text(endpoint, heard)
    return raised.value


async def test_a_response_takes_one_request_with_the_key() -> None:
    async with remote(responds_with(text("Hel", "lo."))) as (endpoint, server):
        assert await spoken_text(endpoint) == "Hello."
    (request,) = server.requests
    assert request.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}".encode() in request
    assert json.loads(request.partition(b"\r\n\r\n")[2])["model"] == "m"


async def test_tool_calls_are_yielded_when_the_response_is_complete() -> None:
    called = event(tool_calls=[{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}])
    whole = HEAD + event(content="One moment.") + called + b"data: [DONE]\n\n"
    async with remote(responds_with(whole), responds_with(whole.removesuffix(b"data: [DONE]\n\n"))) as (endpoint, _):
        model = RemoteLanguageModel(endpoint)
        assert [part async for part in model.respond(PROMPT)] == [TextDelta("One moment."), ToolCall("a", "x", "{}")]
        parts = []
        with pytest.raises(RemoteModelError):
            async for part in model.respond(PROMPT):
                parts.append(part)
        assert parts == [TextDelta("One moment.")], "an answer that broke off has called nothing"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (responds_then_hangs(), "late"),
        (responds_then_hangs(b"HTTP/1.1 200"), "late"),
        (responds_then_hangs(HEAD), "late"),
        (responds_then_hangs(HEAD + event(role="assistant")), "late"),
        (responds_with(b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n"), "unreachable"),
        (responds_with(b"HTTP/1.1 200 OK\r\n" + MANY_HEADERS + b"\r\n"), "unreachable"),
        (responds_with(b"SSH-2.0-OpenSSH_9.2\r\n"), "unreachable"),
        (responds_with(HEAD + b"data: {no json\n\n"), "broken"),
        (responds_with(HEAD + b"data: [1, 2]\n\n"), "broken"),
        (responds_with(HEAD + b"data: " + b"x" * 300_000), "broken"),
        (responds_with(HEAD + b"data: [DONE]\n\n"), "broken"),
        (responds_with(HEAD + b"<html>\n\n"), "unreachable"),
        (responds_with(HEAD), "unreachable"),
        (responds_then_resets(), "unreachable"),
        (responds_then_resets(HEAD), "unreachable"),
        (status(302, Location="http://127.0.0.1:1/"), "refused"),
        (status(401, b'{"error": {"message": "no key"}}'), "refused"),
        (status(400, b"too long"), "refused"),
        (status(500), "failing"),
    ],
)  # fmt: skip
async def test_a_failure_before_the_first_token_raises_within_its_timeout(answer: Answer, what: str) -> None:
    async with remote(answer, limits=replace(QUICK, first_word_s=0.3 if what == "late" else 8)) as (endpoint, _):
        began = time.monotonic()
        raised = await error_of(endpoint)
    assert raised.kind == what, raised.message
    assert raised.message.startswith("gpu ")
    assert KEY not in raised.message
    assert time.monotonic() - began < 6, "a busy machine has some time more"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (responds_then_hangs(HEAD + HELLO), "late"),
        (responds_then_resets(HEAD + HELLO), "unreachable"),
        (responds_with(HEAD + HELLO), "unreachable"),
        (responds_with(HEAD + HELLO + b"data: {\n\n"), "broken"),
        (responds_with(HEAD + HELLO + b'data: {"error": {"message": "out of memory"}}\n\n'), "failing"),
    ],
)
async def test_a_failure_after_the_first_token_is_not_retried(answer: Answer, what: str) -> None:
    heard: list[str] = []
    limits = replace(QUICK, between_words_s=0.3 if what == "late" else 8)
    async with remote(answer, responds_with(text("Again.")), limits=limits) as (endpoint, server):
        raised = await error_of(endpoint, heard)
    assert (raised.kind, heard, len(server.requests)) == (what, ["Hel", "lo."], 1)


@pytest.mark.parametrize(
    "answer",
    [
        responds_then_resets(),
        responds_then_resets(HEAD),
        status(500),
        status(503),
        status(429),
        status(503, Retry_After="0"),
    ],
)
async def test_a_transient_failure_before_the_first_token_is_retried(answer: Answer) -> None:
    async with remote(answer, responds_with(text("Hello."))) as (endpoint, server):
        assert await spoken_text(endpoint) == "Hello."
    assert len(server.requests) == 2


@pytest.mark.parametrize("answer", [status(400), status(401), status(404), status(503, Retry_After="2")])
async def test_a_wrong_request_and_a_retry_after_that_no_caller_waits_for_are_not_retried(answer: Answer) -> None:
    async with remote(answer, responds_with(text("Hello."))) as (endpoint, server):
        await error_of(endpoint)
    assert len(server.requests) == 1


async def test_a_failing_server_gets_at_most_three_requests() -> None:
    async with remote(status(500)) as (endpoint, server):
        await error_of(endpoint)
    assert len(server.requests) == 3


async def test_empty_chunks_do_not_extend_the_timeout_between_tokens() -> None:
    async def pings(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + HELLO)
        while True:
            writer.write(b": ping\n\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    heard: list[str] = []
    async with remote(pings, limits=replace(QUICK, between_words_s=0.3)) as (endpoint, _):
        raised = await error_of(endpoint, heard)
    assert (raised.kind, "".join(heard)) == ("late", "Hello.")


@pytest.mark.parametrize(("whole_s", "heard"), [(60, "Hello."), (9, "Hel")])
async def test_the_first_token_timeout_ends_with_it_and_the_total_timeout_does_not(whole_s: float, heard: str) -> None:
    first_was_heard, now_s = asyncio.Event(), 100.0

    async def in_two(writer: asyncio.StreamWriter) -> None:
        await responds_with(HEAD, event(content="Hel"))(writer)
        await first_was_heard.wait()
        await responds_with(event(content="lo."), b"data: [DONE]\n\n")(writer)

    async with remote(in_two, limits=replace(QUICK, total_s=whole_s)) as (endpoint, _):
        endpoint.clock = lambda: now_s
        spoken_text = ""
        try:
            async for part in RemoteLanguageModel(endpoint).respond(PROMPT):
                assert isinstance(part, TextDelta)
                spoken_text += part.text
                now_s += QUICK.first_word_s + 2
                first_was_heard.set()
        except RemoteModelError as late:
            spoken_text += f" ({late.kind})"
    assert spoken_text == (heard if whole_s > 10 else f"{heard} (late)")


async def test_an_endless_response_is_cut_off() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while True:
            writer.write(event(role="assistant") * 1000)
            await writer.drain()

    async with remote(endless) as (endpoint, server):
        raised = await error_of(endpoint)
        await server.left.wait()
    assert "longer than it may be" in raised.message
    assert MAX_RESPONSE_BYTES < 10**7


async def test_endless_text_is_cut_off() -> None:
    async def talks(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while True:
            writer.write(event(content="and on and " * 100))
            await writer.drain()

    async with remote(talks) as (endpoint, server):
        raised = await error_of(endpoint)
        await server.left.wait()
    assert "more than can be said" in raised.message


async def test_closing_a_response_closes_its_connection() -> None:
    async def talks(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while True:
            writer.write(HELLO)
            await writer.drain()
            await asyncio.sleep(0.01)

    async with remote(talks) as (endpoint, server):
        parts = RemoteLanguageModel(endpoint).respond(PROMPT)
        assert await anext(parts) == TextDelta("Hel")
        await parts.aclose()
        async with asyncio.timeout(10):
            await server.left.wait()
        assert endpoint.breaker.state(endpoint.clock()) is CircuitState.CLOSED


async def test_a_repeatedly_failing_server_is_skipped_and_then_probed() -> None:
    async with remote(*[status(401)] * 3, responds_with(text("Hello."))) as (endpoint, server):
        now_s = 100.0
        endpoint.clock = lambda: now_s
        assert [(await error_of(endpoint)).kind for _ in range(5)] == ["refused"] * 3 + ["resting"] * 2
        assert len(server.requests) == 3
        now_s += 10
        assert await spoken_text(endpoint) == "Hello."
        assert endpoint.breaker.state(now_s) is CircuitState.CLOSED


@pytest.mark.parametrize("answer", [status(429, Retry_After="5"), status(503, Retry_After="5")])
async def test_an_overloaded_server_is_asked_less_and_its_circuit_stays_closed(answer: Answer) -> None:
    async with remote(answer) as (endpoint, _):
        errors = [await error_of(endpoint) for _ in range(4)]
        assert endpoint.breaker.state(endpoint.clock()) is CircuitState.CLOSED
        assert endpoint.queue.limit.at(endpoint.clock()) == 0
    assert {error.kind for error in errors} == {"busy"}
    assert "answered with status" in errors[0].message
    assert "has too many requests and is not asked for" in errors[1].message


async def test_a_server_that_is_down_opens_its_circuit_by_503() -> None:
    async with remote(status(503)) as (endpoint, _):
        for _ in range(3):
            await error_of(endpoint)
        assert endpoint.breaker.state(endpoint.clock()) is CircuitState.OPEN


async def test_a_response_that_finds_no_place_fails_in_time() -> None:
    async with remote(responds_then_hangs(HEAD + HELLO), limits=replace(QUICK, first_word_s=1)) as (endpoint, server):
        one = RemoteModelClient(endpoint.model, endpoint._http, limit=1)
        parts = RemoteLanguageModel(one).respond(PROMPT)
        assert await anext(parts) == TextDelta("Hel")
        raised = await error_of(one)
        await parts.aclose()
    assert (raised.kind, len(server.requests)) == ("busy", 1)
    assert one.queue.in_flight == 0


async def test_invalid_requests_do_not_open_the_circuit() -> None:
    async with remote(status(400)) as (endpoint, server):
        for _ in range(4):
            assert (await error_of(endpoint)).kind == "refused"
    assert len(server.requests) == 4


async def test_the_prompt_of_a_call_that_begins_is_prefilled_with_one_token() -> None:
    async with remote(responds_with(text("x"))) as (endpoint, server):
        model = RemoteLanguageModel(endpoint)
        await model.prefill(PROMPT)
        assert server.requests == [], "the server has the beginning of a conversation that is under way"
        await model.prefill(replace(PROMPT, messages=[]))
        (request,) = server.requests
        body = json.loads(request.partition(b"\r\n\r\n")[2])
        assert (body["max_tokens"], body["messages"][0]) == (1, {"role": "system", "content": "You help."})


async def test_a_prompt_is_not_prefilled_while_callers_have_all_places() -> None:
    async with remote(responds_with(text("x"))) as (endpoint, server):
        one = RemoteModelClient(endpoint.model, endpoint._http, limit=1)
        async with one.attempt():
            with pytest.raises(RemoteModelError) as raised:
                await RemoteLanguageModel(one).prefill(replace(PROMPT, messages=[]))
    assert (raised.value.kind, server.requests) == ("busy", [])


async def test_an_unreachable_server_raises() -> None:
    async with remote(responds_with(text("x"))) as (endpoint, server):
        away = replace(endpoint.model, base_url=endpoint.model.base_url.replace(str(server.port), "1"))
        raised = await error_of(RemoteModelClient(away, endpoint._http))
    assert raised.kind == "unreachable"


async def test_a_key_in_an_error_text_is_masked() -> None:
    async with remote(status(403, f'{{"error": "wrong key {KEY}"}}'.encode())) as (endpoint, _):
        assert "wrong key [key]" in (await error_of(endpoint)).message


@pytest.mark.parametrize("before", [0, 182, 190])
async def test_a_part_of_a_key_in_an_error_text_is_masked(before: int) -> None:
    """Also in the traceback, and where the excerpt cuts the key."""
    async with remote(status(403, f'{{"error": "{"x" * before}{KEY}"}}'.encode())) as (endpoint, _):
        raised = await error_of(endpoint)
    assert "[key]" in raised.message
    assert KEY[:6] not in "".join(traceback.format_exception(raised))


async def test_a_short_key_is_masked_too() -> None:
    async with remote(status(403, b'{"error": "wrong key abc, absent"}')) as (endpoint, _):
        own = RemoteModelClient(replace(endpoint.model, key="abc"), endpoint._http)
        assert "(wrong key [key], absent)" in (await error_of(own)).message


async def test_a_response_in_one_piece_is_limited_like_an_event() -> None:
    """Parsing its JSON blocks all calls."""
    body = '{"choices": [' + "[]," * 100_000 + "[]]}"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    async with remote(responds_with((head + body).encode())) as (endpoint, _):
        assert "sends an answer that is longer than it may be" in (await error_of(endpoint)).message


async def test_a_response_that_is_not_streamed_is_spoken() -> None:
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]})
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    async with remote(responds_with((head + body).encode())) as (endpoint, _):
        assert await spoken_text(endpoint) == "Hello."


async def test_json_is_completed() -> None:
    async with remote(responds_with(text('{"mood"', ': "good"}'))) as (endpoint, server):
        filled = await RemoteLanguageModel(endpoint).complete_json(PROMPT, {"type": "object"})
    assert filled == '{"mood": "good"}'
    assert b'"response_format"' in server.requests[0]


@pytest.mark.parametrize("cut", ['{"mood": "go', "The caller was glad."])
async def test_truncated_and_invalid_json_raises_and_does_not_open_the_circuit(cut: str) -> None:
    async with remote(responds_with(text(cut))) as (endpoint, server):
        for _ in range(4):
            with pytest.raises(RemoteModelError, match="gpu sends what is no JSON"):
                await RemoteLanguageModel(endpoint).complete_json(PROMPT, {"type": "object"})
    assert len(server.requests) == 4


class Unanswered:
    """Connections time out."""

    def __init__(self, kind: ErrorKind) -> None:
        self.kind = kind
        self.asked = 0

    def open(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise HttpEgressError(self.kind, "no connection")


@pytest.mark.parametrize(("kind", "asked"), [("timeout", 1), ("connection", 3)])
async def test_a_refused_connection_is_retried_and_a_timed_out_one_is_not(kind: ErrorKind, asked: int) -> None:
    nowhere = Unanswered(kind)
    endpoint = RemoteModelClient(RemoteModel("gpu", "llm", "http://gpu/v1", "m", timeouts=QUICK), nowhere)
    endpoint.pauses_s = (0.0, 0.0)
    await error_of(endpoint)
    assert nowhere.asked == asked
