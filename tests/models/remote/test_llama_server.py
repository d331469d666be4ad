"""The protocol of a real server: llama-cpp-python's own, on a model of random weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from calls.http_egress.client import HttpEgressClient, HttpEgressStream
from models.errors import RemoteModelError
from models.llm.fallback import FallbackLanguageModel
from models.protocols import ChatMessage, ChatPrompt, TextDelta, ToolCall, ToolDefinition
from models.remote.client import RemoteModelClient
from models.remote.config import RemoteModel, RemoteTimeouts
from models.remote.embeddings import RemoteEmbeddings
from models.remote.language_model import RemoteLanguageModel
from models.runtime.request_context import ModelFallback, RequestContext, requests_for
from tests.calls.http_server import LOOPBACK, client_with, system_tls
from tests.models.remote.llama_server import KEY, MODEL, VECTORS, WITH_TOOLS, llama_server, saying
from tests.models.remote.raw_server import (
    HEAD,
    Answer,
    remote,
    responds_then_hangs,
    responds_then_resets,
    responds_with,
    status,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATIENT = RemoteTimeouts(connect_s=10, first_word_s=30, between_words_s=30, total_s=60)
LOOK_UP = ToolDefinition(
    "look_up",
    "Looks up an order.",
    {"type": "object", "properties": {"by": {"type": "string", "enum": ["name", "phone"]}}, "required": ["by"]},
)
PROMPT = ChatPrompt("call", "You help.", [ChatMessage("user", "Where is my order?")])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoint(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RemoteModelClient]:
    async with llama_server(tmp_path_factory.mktemp("gpu")) as server, client_with(LOOPBACK) as client:
        model = RemoteModel("gpu", "llm", server.base_url, MODEL, KEY, PATIENT, context_length=4096)
        yield RemoteModelClient(model, client)


def changed(endpoint: RemoteModelClient, **changes: object) -> RemoteModelClient:
    return RemoteModelClient(replace(endpoint.model, **changes), endpoint._http)  # type: ignore[arg-type]


async def test_its_models_are_listed(endpoint: RemoteModelClient) -> None:
    assert await endpoint.list_models() == [MODEL, WITH_TOOLS, VECTORS]


async def test_a_response_is_streamed(endpoint: RemoteModelClient) -> None:
    text = 'It is on its way: "tomorrow", at nine, für Sie.'
    model = RemoteLanguageModel(changed(endpoint, extra=saying(text)))
    parts = [part async for part in model.respond(PROMPT)]
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == text
    assert len(parts) > 10


async def test_the_turns_of_a_conversation_share_a_connection(endpoint: RemoteModelClient) -> None:
    tls = await asyncio.to_thread(system_tls)
    reused: list[bool] = []
    http = HttpEgressClient(LOOPBACK, tls, keep_alive_s=4)
    opened = http.open

    @asynccontextmanager
    async def noting(*arguments: Any, **named: Any) -> AsyncIterator[HttpEgressStream]:
        async with opened(*arguments, **named) as stream:
            reused.append(stream.reused)
            yield stream

    http.open = noting  # type: ignore[method-assign]
    model = RemoteLanguageModel(RemoteModelClient(replace(endpoint.model, extra=saying("Yes.")), http))
    for _ in range(3):
        assert [part async for part in model.respond(PROMPT)]
        while http._drains:
            await asyncio.wait(http._drains)
    await http.close()
    assert reused == [False, True, True]


async def test_a_tool_is_called_and_its_result_is_sent(endpoint: RemoteModelClient) -> None:
    chosen = {"type": "function", "function": {"name": "look_up"}}
    asking = RemoteLanguageModel(changed(endpoint, model=WITH_TOOLS, extra={"tool_choice": chosen}))
    (call,) = [part async for part in asking.respond(replace(PROMPT, tools=[LOOK_UP]))]
    assert isinstance(call, ToolCall)
    assert call.name == "look_up" and call.id
    assert json.loads(call.arguments)["by"] in ("name", "phone")

    told = (*PROMPT.messages, ChatMessage("assistant", "", [call]), ChatMessage("tool", "Sent.", tool_call_id=call.id))
    answering = RemoteLanguageModel(changed(endpoint, extra=saying("It was sent.")))
    parts = [part async for part in answering.respond(replace(PROMPT, messages=told, tools=[LOOK_UP]))]
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == "It was sent."


async def test_texts_become_vectors(endpoint: RemoteModelClient) -> None:
    embeddings = RemoteEmbeddings(changed(endpoint, model=VECTORS, kind="embedding"))
    one, two, one_again = await embeddings.embed(["one text", "another one", "one text"], query=False)
    np.testing.assert_allclose(one, one_again, atol=1e-5)
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    assert float(one @ two) < 0.99


async def test_a_wrong_key_raises_without_repeating_it(endpoint: RemoteModelClient) -> None:
    model = RemoteLanguageModel(changed(endpoint, key="sk-not-the-one"))
    with pytest.raises(RemoteModelError) as raised:
        _ = [part async for part in model.respond(PROMPT)]
    assert raised.value.message == "gpu answered with status 401 (Invalid API key)"


@pytest.mark.parametrize(
    ("fault", "reason", "requests"),
    [
        (status(429, Retry_After="20"), "busy", 1),
        (status(500), "failing", 3),
        (responds_then_hangs(HEAD), "late", 1),
        (responds_then_resets(HEAD), "unreachable", 3),
        (responds_with(HEAD + b"data: {no json\n\n"), "broken", 1),
    ],
)
async def test_the_next_server_of_the_chain_responds_in_time(
    endpoint: RemoteModelClient, fault: Answer, reason: str, requests: int
) -> None:
    """From the first server's failure to the second one's response, and again while the first one is not asked."""
    second = RemoteLanguageModel(changed(endpoint, name="second", extra=saying("From the second.")))
    limits = replace(PATIENT, first_word_s=0.5 if reason == "late" else 20)
    told: list[ModelFallback] = []
    async with remote(fault, limits=limits) as (first, server):
        chain = FallbackLanguageModel("gpu", [RemoteLanguageModel(first), second])
        with requests_for(RequestContext(on_fallback=told.append)):
            for _ in range(4):
                parts = [part async for part in chain.respond(PROMPT)]
                assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == "From the second."
    reasons = ["busy"] * 4 if reason == "busy" else [*[reason] * 3, "resting"]
    assert told == [ModelFallback("llm", "gpu", "second", each) for each in reasons]
    assert len(server.requests) == (1 if reason == "busy" else 3 * requests)
