"""Token usage of remote models, for billing."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from models.protocols import ChatMessage, ChatPrompt
from models.remote.chat_stream_parser import ChatStreamParser
from models.remote.client import RemoteModelClient
from models.remote.language_model import MAX_ANSWERS_WITHOUT_USAGE, USAGE_TIMEOUT_S, RemoteLanguageModel
from models.token_usage import TokenUsage
from tests.models.remote.raw_server import HEAD, event, remote, responds_then_hangs, responds_with, status, text

PROMPT = ChatPrompt("call", "You help.", [ChatMessage("user", "When do you open tomorrow?")])
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
BELIEVED = len("You help.When do you open tomorrow?") // 4, len("At nine.") // 4


def usage(read: int, written: int) -> bytes:
    told = {
        "choices": [],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }
    return b"data: " + json.dumps(told).encode() + b"\n\n"


async def usage_of(model: RemoteLanguageModel) -> tuple[int, int]:
    """The tokens of one response."""
    count = TokenUsage()
    async for _ in model.respond(replace(PROMPT, tokens=count)):
        pass
    return count.prompt_tokens, count.completion_tokens


@pytest.mark.parametrize(
    "rest",
    [
        [END, usage(31, 4), b"data: [DONE]\n\n"],
        [usage(31, 1), usage(31, 4), END],  # some count as they go
        [END + usage(31, 4)],
        [END, usage(31, 4).replace(b'"choices": []', b'"choices": [{"index": 0, "delta": {"content": ""}}]')],
    ],
)
async def test_usage_is_as_the_server_reports_it(rest: list[bytes]) -> None:
    async with remote(responds_with(HEAD, event(content="At nine."), *rest)) as (endpoint, server):
        assert await usage_of(RemoteLanguageModel(endpoint)) == (31, 4)
    assert json.loads(server.requests[0].partition(b"\r\n\r\n")[2])["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("told", [{"prompt_tokens": -1, "completion_tokens": 4}, {"prompt_tokens": 10**9}, 7, None])
async def test_an_implausible_usage_report_is_ignored(told: Any) -> None:
    answer = ChatStreamParser(iter(()))
    answer.feed({"choices": [], "usage": told})
    assert answer.usage is None


async def test_without_a_report_usage_is_a_token_for_four_characters() -> None:
    async with remote(responds_with(text("At nine."))) as (endpoint, _):
        assert await usage_of(RemoteLanguageModel(endpoint)) == BELIEVED


async def test_an_interrupted_response_counts_its_received_text() -> None:
    async with remote(responds_then_hangs(HEAD, event(content="At nine."))) as (endpoint, _):
        count = TokenUsage()
        async with aclosing(RemoteLanguageModel(endpoint).respond(replace(PROMPT, tokens=count))) as parts:
            await anext(parts)
    assert (count.prompt_tokens, count.completion_tokens) == BELIEVED


async def test_a_response_that_failed_before_its_first_token_counts_nothing() -> None:
    async with remote(status(401)) as (endpoint, _):
        count = TokenUsage()
        with pytest.raises(Exception, match="401"):
            async for _ in RemoteLanguageModel(endpoint).respond(replace(PROMPT, tokens=count)):
                pass
    assert (count.prompt_tokens, count.completion_tokens) == (0, 0)


async def test_no_wait_for_usage_of_a_server_that_never_reports_it() -> None:
    async with remote(responds_then_hangs(HEAD, event(content="At nine."), END)) as (endpoint, server):
        model = RemoteLanguageModel(endpoint)
        for _ in range(MAX_ANSWERS_WITHOUT_USAGE):
            began = time.monotonic()
            await usage_of(model)
            assert time.monotonic() - began >= USAGE_TIMEOUT_S
        async with asyncio.timeout(20):
            assert await usage_of(model) == BELIEVED
        assert model._answers_without_usage == MAX_ANSWERS_WITHOUT_USAGE  # and so it was not waited for
    assert len(server.requests) == MAX_ANSWERS_WITHOUT_USAGE + 1


async def test_a_server_that_rejects_stream_options_gets_requests_without() -> None:
    refusal = status(400, b'{"error": {"message": "Unrecognized request argument supplied: stream_options"}}')
    async with remote(refusal, responds_with(text("At nine."))) as (endpoint, server):
        model = RemoteLanguageModel(endpoint)
        assert await usage_of(model) == BELIEVED
        assert await usage_of(model) == BELIEVED
    assert ["stream_options" in request.decode() for request in server.requests] == [True, False, False]


async def test_the_field_can_be_removed_by_extra() -> None:
    async with remote(responds_with(text("At nine."))) as (endpoint, server):
        without = RemoteModelClient(replace(endpoint.model, extra={"stream_options": None}), endpoint._http)
        await usage_of(RemoteLanguageModel(without))
    assert b"stream_options" not in server.requests[0]


async def test_json_completion_is_counted_too() -> None:
    async with remote(responds_with(HEAD, event(content="{}"), END, usage(50, 2))) as (endpoint, _):
        count = TokenUsage()
        await RemoteLanguageModel(endpoint).complete_json(replace(PROMPT, tokens=count), {"type": "object"})
    assert (count.prompt_tokens, count.completion_tokens) == (50, 2)
