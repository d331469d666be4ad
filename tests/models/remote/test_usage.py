"""What an answer of a remote model took, for whoever pays for it."""

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
from models.remote.language_model import MOST_UNTOLD, USAGE_S, RemoteLanguageModel
from models.token_usage import TokenUsage
from tests.models.remote.raw_server import HEAD, event, gives, remote, status, text, then_hangs

PROMPT = ChatPrompt("call", "You help.", [ChatMessage("user", "When do you open tomorrow?")])
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
BELIEVED = len("You help.When do you open tomorrow?") // 4, len("At nine.") // 4


def usage(read: int, written: int) -> bytes:
    told = {
        "choices": [],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }
    return b"data: " + json.dumps(told).encode() + b"\n\n"


async def took(model: RemoteLanguageModel) -> tuple[int, int]:
    """Tokens of one answer."""
    count = TokenUsage()
    async for _ in model.respond(replace(PROMPT, tokens=count)):
        pass
    return count.read, count.written


@pytest.mark.parametrize(
    "rest",
    [
        [END, usage(31, 4), b"data: [DONE]\n\n"],
        [usage(31, 1), usage(31, 4), END],  # some count as they go
        [END + usage(31, 4)],
        [END, usage(31, 4).replace(b'"choices": []', b'"choices": [{"index": 0, "delta": {"content": ""}}]')],
    ],
)
async def test_the_server_says_what_an_answer_took(rest: list[bytes]) -> None:
    async with remote(gives(HEAD, event(content="At nine."), *rest)) as (endpoint, server):
        assert await took(RemoteLanguageModel(endpoint)) == (31, 4)
    assert json.loads(server.requests[0].partition(b"\r\n\r\n")[2])["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("told", [{"prompt_tokens": -1, "completion_tokens": 4}, {"prompt_tokens": 10**9}, 7, None])
async def test_what_cannot_be_is_not_believed(told: Any) -> None:
    answer = ChatStreamParser(iter(()))
    answer.feed({"choices": [], "usage": told})
    assert answer.usage is None


async def test_a_server_that_does_not_tell_is_believed_to_take_a_token_for_four_characters() -> None:
    async with remote(gives(text("At nine."))) as (endpoint, _):
        assert await took(RemoteLanguageModel(endpoint)) == BELIEVED


async def test_what_was_broken_off_counts_as_far_as_it_came() -> None:
    async with remote(then_hangs(HEAD, event(content="At nine."))) as (endpoint, _):
        count = TokenUsage()
        async with aclosing(RemoteLanguageModel(endpoint).respond(replace(PROMPT, tokens=count))) as parts:
            await anext(parts)
    assert (count.read, count.written) == BELIEVED


async def test_an_answer_that_failed_before_its_first_word_counts_nothing() -> None:
    async with remote(status(401)) as (endpoint, _):
        count = TokenUsage()
        with pytest.raises(Exception, match="401"):
            async for _ in RemoteLanguageModel(endpoint).respond(replace(PROMPT, tokens=count)):
                pass
    assert (count.read, count.written) == (0, 0)


async def test_a_caller_does_not_wait_for_a_server_that_does_not_tell() -> None:
    async with remote(then_hangs(HEAD, event(content="At nine."), END)) as (endpoint, server):
        model = RemoteLanguageModel(endpoint)
        for _ in range(MOST_UNTOLD):
            began = time.monotonic()
            await took(model)
            assert time.monotonic() - began >= USAGE_S
        async with asyncio.timeout(20):
            assert await took(model) == BELIEVED
        assert model._untold == MOST_UNTOLD  # and so it was not waited for
    assert len(server.requests) == MOST_UNTOLD + 1


async def test_a_server_that_refuses_to_be_asked_is_asked_without() -> None:
    refusal = status(400, b'{"error": {"message": "Unrecognized request argument supplied: stream_options"}}')
    async with remote(refusal, gives(text("At nine."))) as (endpoint, server):
        model = RemoteLanguageModel(endpoint)
        assert await took(model) == BELIEVED
        assert await took(model) == BELIEVED
    assert ["stream_options" in request.decode() for request in server.requests] == [True, False, False]


async def test_the_field_can_be_taken_out() -> None:
    async with remote(gives(text("At nine."))) as (endpoint, server):
        without = RemoteModelClient(replace(endpoint.model, extra={"stream_options": None}), endpoint._http)
        await took(RemoteLanguageModel(without))
    assert b"stream_options" not in server.requests[0]


async def test_a_form_is_counted_too() -> None:
    async with remote(gives(HEAD, event(content="{}"), END, usage(50, 2))) as (endpoint, _):
        count = TokenUsage()
        await RemoteLanguageModel(endpoint).complete_json(replace(PROMPT, tokens=count), {"type": "object"})
    assert (count.read, count.written) == (50, 2)
