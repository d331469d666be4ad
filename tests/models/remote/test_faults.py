"""Servers that hang, break off, refuse and lie: each ends one answer, in time, with an error that says so."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from dataclasses import replace
from typing import Any

import pytest

from config.errors import EgressError, ErrorKind
from models.errors import RemoteModelError
from models.protocols import ChatMessage, ChatPrompt, TextDelta, ToolCall
from models.remote.circuit_breaker import CircuitState
from models.remote.client import RemoteModelClient
from models.remote.config import RemoteModel
from models.remote.language_model import MOST_BYTES, RemoteLanguageModel
from tests.models.remote.raw_server import (
    HEAD,
    KEY,
    QUICK,
    Answer,
    event,
    gives,
    remote,
    status,
    text,
    then_hangs,
    then_resets,
)

PROMPT = ChatPrompt("call", "You help.", [ChatMessage("user", "Hello?")])
HELLO = event(content="Hel") + event(content="lo.")


async def said(endpoint: RemoteModelClient, heard: list[str] | None = None) -> str:
    """The answer's text; `heard` gets its pieces also when it fails."""
    heard = [] if heard is None else heard
    async for part in RemoteLanguageModel(endpoint).respond(PROMPT):
        assert isinstance(part, TextDelta)
        heard.append(part.text)
    return "".join(heard)


async def trouble(endpoint: RemoteModelClient, heard: list[str] | None = None) -> RemoteModelError:
    with pytest.raises(RemoteModelError) as raised:
        await said(endpoint, heard)
    return raised.value


async def test_an_answer_comes_with_one_request_that_carries_the_key() -> None:
    async with remote(gives(text("Hel", "lo."))) as (endpoint, server):
        assert await said(endpoint) == "Hello."
    (request,) = server.requests
    assert request.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}".encode() in request
    assert json.loads(request.partition(b"\r\n\r\n")[2])["model"] == "m"


async def test_tools_are_called_once_the_answer_is_complete() -> None:
    called = event(tool_calls=[{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}])
    whole = HEAD + event(content="One moment.") + called + b"data: [DONE]\n\n"
    async with remote(gives(whole), gives(whole.removesuffix(b"data: [DONE]\n\n"))) as (endpoint, _):
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
        (then_hangs(), "late"),
        (then_hangs(b"HTTP/1.1 200"), "late"),
        (then_hangs(HEAD), "late"),
        (then_hangs(HEAD + event(role="assistant")), "late"),
        (gives(b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n"), "unreachable"),
        (gives(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + b"\r\n"), "unreachable"),
        (gives(b"SSH-2.0-OpenSSH_9.2\r\n"), "unreachable"),
        (gives(HEAD + b"data: {no json\n\n"), "broken"),
        (gives(HEAD + b"data: [1, 2]\n\n"), "broken"),
        (gives(HEAD + b"data: " + b"x" * 300_000), "broken"),
        (gives(HEAD + b"data: [DONE]\n\n"), "broken"),
        (gives(HEAD + b"<html>\n\n"), "unreachable"),
        (gives(HEAD), "unreachable"),
        (then_resets(), "unreachable"),
        (then_resets(HEAD), "unreachable"),
        (status(302, Location="http://127.0.0.1:1/"), "refused"),
        (status(401, b'{"error": {"message": "no key"}}'), "refused"),
        (status(400, b"too long"), "refused"),
        (status(500), "failing"),
    ],
)  # fmt: skip
async def test_what_goes_wrong_before_the_first_word_is_told_within_the_time_for_it(answer: Answer, what: str) -> None:
    async with remote(answer, limits=replace(QUICK, first_word_s=0.3 if what == "late" else 8)) as (endpoint, _):
        began = time.monotonic()
        raised = await trouble(endpoint)
    assert raised.kind == what, raised.message
    assert raised.message.startswith("gpu ")
    assert KEY not in raised.message
    assert time.monotonic() - began < 6, "a busy machine has some time more"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (then_hangs(HEAD + HELLO), "late"),
        (then_resets(HEAD + HELLO), "unreachable"),
        (gives(HEAD + HELLO), "unreachable"),
        (gives(HEAD + HELLO + b"data: {\n\n"), "broken"),
        (gives(HEAD + HELLO + b'data: {"error": {"message": "out of memory"}}\n\n'), "failing"),
    ],
)
async def test_what_breaks_off_after_the_first_word_is_not_asked_for_again(answer: Answer, what: str) -> None:
    heard: list[str] = []
    limits = replace(QUICK, between_words_s=0.3 if what == "late" else 8)
    async with remote(answer, gives(text("Again.")), limits=limits) as (endpoint, server):
        raised = await trouble(endpoint, heard)
    assert (raised.kind, heard, len(server.requests)) == (what, ["Hel", "lo."], 1)


@pytest.mark.parametrize(
    "answer", [then_resets(), then_resets(HEAD), status(500), status(503), status(429), status(503, Retry_After="0")]
)
async def test_what_may_pass_is_asked_for_again_before_the_first_word(answer: Answer) -> None:
    async with remote(answer, gives(text("Hello."))) as (endpoint, server):
        assert await said(endpoint) == "Hello."
    assert len(server.requests) == 2


@pytest.mark.parametrize("answer", [status(400), status(401), status(404), status(503, Retry_After="30")])
async def test_what_will_not_pass_in_time_is_not_asked_for_again(answer: Answer) -> None:
    async with remote(answer, gives(text("Hello."))) as (endpoint, server):
        await trouble(endpoint)
    assert len(server.requests) == 1


async def test_a_server_that_goes_on_failing_is_asked_three_times_at_most() -> None:
    async with remote(status(500)) as (endpoint, server):
        await trouble(endpoint)
    assert len(server.requests) == 3


async def test_signs_of_life_that_say_nothing_do_not_prolong_the_time_between_words() -> None:
    async def pings(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + HELLO)
        while True:
            writer.write(b": ping\n\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    heard: list[str] = []
    async with remote(pings, limits=replace(QUICK, between_words_s=0.3)) as (endpoint, _):
        raised = await trouble(endpoint, heard)
    assert (raised.kind, "".join(heard)) == ("late", "Hello.")


@pytest.mark.parametrize(("whole_s", "heard"), [(60, "Hello."), (9, "Hel")])
async def test_time_for_the_first_word_ends_with_it_and_that_for_the_whole_answer_does_not(
    whole_s: float, heard: str
) -> None:
    first_was_heard, now_s = asyncio.Event(), 100.0

    async def in_two(writer: asyncio.StreamWriter) -> None:
        await gives(HEAD, event(content="Hel"))(writer)
        await first_was_heard.wait()
        await gives(event(content="lo."), b"data: [DONE]\n\n")(writer)

    async with remote(in_two, limits=replace(QUICK, total_s=whole_s)) as (endpoint, _):
        endpoint.clock = lambda: now_s
        said = ""
        try:
            async for part in RemoteLanguageModel(endpoint).respond(PROMPT):
                assert isinstance(part, TextDelta)
                said += part.text
                now_s += QUICK.first_word_s + 2
                first_was_heard.set()
        except RemoteModelError as late:
            said += f" ({late.kind})"
    assert said == (heard if whole_s > 10 else f"{heard} (late)")


async def test_an_answer_without_an_end_is_cut() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while True:
            writer.write(event(role="assistant") * 1000)
            await writer.drain()

    async with remote(endless) as (endpoint, server):
        raised = await trouble(endpoint)
        await server.left.wait()
    assert "longer than it may be" in raised.message
    assert MOST_BYTES < 10**7


async def test_words_without_an_end_are_cut() -> None:
    async def talks(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while True:
            writer.write(event(content="and on and " * 100))
            await writer.drain()

    async with remote(talks) as (endpoint, server):
        raised = await trouble(endpoint)
        await server.left.wait()
    assert "more than can be said" in raised.message


async def test_closing_an_answer_closes_its_connection_so_that_the_server_stops() -> None:
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


async def test_a_server_that_fails_again_and_again_is_left_alone_and_then_asked_once() -> None:
    async with remote(*[status(401)] * 3, gives(text("Hello."))) as (endpoint, server):
        now_s = 100.0
        endpoint.clock = lambda: now_s
        assert [(await trouble(endpoint)).kind for _ in range(5)] == ["refused"] * 3 + ["resting"] * 2
        assert len(server.requests) == 3
        now_s += 10
        assert await said(endpoint) == "Hello."
        assert endpoint.breaker.state(now_s) is CircuitState.CLOSED


async def test_requests_that_are_wrong_in_themselves_say_nothing_against_the_server() -> None:
    async with remote(status(400)) as (endpoint, server):
        for _ in range(4):
            assert (await trouble(endpoint)).kind == "refused"
    assert len(server.requests) == 4


async def test_a_server_that_is_not_there_is_told_as_such() -> None:
    async with remote(gives(text("x"))) as (endpoint, server):
        away = replace(endpoint.model, base_url=endpoint.model.base_url.replace(str(server.port), "1"))
        raised = await trouble(RemoteModelClient(away, endpoint._http))
    assert raised.kind == "unreachable"


async def test_a_key_that_a_server_repeats_does_not_get_out() -> None:
    async with remote(status(403, f'{{"error": "wrong key {KEY}"}}'.encode())) as (endpoint, _):
        assert "wrong key [key]" in (await trouble(endpoint)).message


@pytest.mark.parametrize("before", [0, 182, 190])
async def test_no_part_of_a_key_that_a_server_repeats_gets_out(before: int) -> None:
    """Nor in the traceback of the error, nor where the server's words are cut off within it."""
    async with remote(status(403, f'{{"error": "{"x" * before}{KEY}"}}'.encode())) as (endpoint, _):
        raised = await trouble(endpoint)
    assert "[key]" in raised.message
    assert KEY[:6] not in "".join(traceback.format_exception(raised))


async def test_a_short_key_is_not_told_either() -> None:
    async with remote(status(403, b'{"error": "wrong key abc, absent"}')) as (endpoint, _):
        own = RemoteModelClient(replace(endpoint.model, key="abc"), endpoint._http)
        assert "(wrong key [key], absent)" in (await trouble(own)).message


async def test_an_answer_in_one_piece_is_no_longer_than_an_event_may_be() -> None:
    """While its JSON is read, all calls wait."""
    body = '{"choices": [' + "[]," * 100_000 + "[]]}"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    async with remote(gives((head + body).encode())) as (endpoint, _):
        assert "sends an answer that is longer than it may be" in (await trouble(endpoint)).message


async def test_an_answer_that_a_server_does_not_stream_is_said_all_the_same() -> None:
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]})
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    async with remote(gives((head + body).encode())) as (endpoint, _):
        assert await said(endpoint) == "Hello."


async def test_a_form_is_filled() -> None:
    async with remote(gives(text('{"mood"', ': "good"}'))) as (endpoint, server):
        filled = await RemoteLanguageModel(endpoint).complete_json(PROMPT, {"type": "object"})
    assert filled == '{"mood": "good"}'
    assert b'"response_format"' in server.requests[0]


@pytest.mark.parametrize("cut", ['{"mood": "go', "The caller was glad."])
async def test_a_form_that_is_cut_off_or_none_is_an_error_of_this_answer_alone(cut: str) -> None:
    async with remote(gives(text(cut))) as (endpoint, server):
        for _ in range(4):
            with pytest.raises(RemoteModelError, match="gpu sends what is no JSON"):
                await RemoteLanguageModel(endpoint).complete_json(PROMPT, {"type": "object"})
    assert len(server.requests) == 4


class Unanswered:
    """No connection comes about in time."""

    def __init__(self, kind: ErrorKind) -> None:
        self.kind = kind
        self.asked = 0

    def open(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise EgressError(self.kind, "no connection")


@pytest.mark.parametrize(("kind", "asked"), [("timeout", 1), ("connection", 3)])
async def test_a_connection_that_is_refused_is_tried_again_and_one_that_takes_too_long_is_not(
    kind: ErrorKind, asked: int
) -> None:
    nowhere = Unanswered(kind)
    endpoint = RemoteModelClient(RemoteModel("gpu", "llm", "http://gpu/v1", "m", timeouts=QUICK), nowhere)
    endpoint.pauses_s = (0.0, 0.0)
    await trouble(endpoint)
    assert nowhere.asked == asked
