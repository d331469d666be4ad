"""Analyses by llama.cpp with random weights, beside an active call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from calls.post_call.analysis import CallAnalyzer
from config.clock import utc_now
from models.llm.llama.batching.engine import BatchEngine, BatchRequest, RequestHandle
from models.llm.llama.batching.scheduler import Priority
from models.llm.llama.bindings import Chunk, LlamaContext
from models.llm.llama.language_model import LlamaLanguageModel
from models.protocols import ChatMessage, ChatPrompt
from storage.agents.agents import Agent
from storage.calls.calls import TranscriptItem
from tests.calls.post_call.finalizer_harness import DAY, GUESTS
from tests.fakes.scripted_call import ScriptedStt, ScriptedTts, scripted_catalogue
from tests.models.llm.llama.tiny_gguf import write_tiny_gguf

LONG = [
    TranscriptItem(role="user" if place % 2 else "assistant", content=f"Words of line {place} of the talk.")
    for place in range(40)
]


@pytest_asyncio.fixture
async def model(tmp_path: Path) -> AsyncIterator[LlamaLanguageModel]:
    path = await asyncio.to_thread(write_tiny_gguf, tmp_path / "tiny.gguf")
    made = await asyncio.to_thread(LlamaLanguageModel, path, sequences=1, context_length=1024, threads=1, max_tokens=40)
    yield made
    await asyncio.to_thread(made.close)


async def test_an_active_turn_does_not_wait_for_an_analysis(
    model: LlamaLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a KV cache for one prompt alone, a turn's first words take as many steps of the engine as without an
    analysis, and the step under way."""
    steps, works, asked = 0, threading.Event(), threading.Event()
    said: list[int] = []
    evaluate, submit = LlamaContext.evaluate, BatchEngine.submit

    def counted(context: LlamaContext, chunks: Sequence[Chunk]) -> list[int]:
        nonlocal steps
        works.set()
        assert asked.wait(20)
        steps += 1
        return evaluate(context, chunks)

    def told(engine: BatchEngine, request: BatchRequest) -> RequestHandle:
        if request.priority is not Priority.LIVE or request.owner != "talks":
            return submit(engine, request)

        def noted(token: int) -> None:  # on the engine's thread, before its next step
            said.append(steps)
            request.on_token(token)

        ticket = submit(engine, replace(request, on_token=noted))
        asked.set()
        return ticket

    async def first_words(call_id: str) -> int:
        asked_at = steps
        said.clear()
        prompt = ChatPrompt(call_id, "You answer the telephone.", [ChatMessage("user", "When do you open?")])
        async with aclosing(model.respond(prompt, first_token_timeout_s=None)) as parts:
            await anext(parts)
        return said[0] - asked_at

    monkeypatch.setattr(LlamaContext, "evaluate", counted)
    monkeypatch.setattr(BatchEngine, "submit", told)
    alone = await first_words("talks")
    asked.clear()
    works.clear()
    analyst = CallAnalyzer(scripted_catalogue(model, ScriptedStt(), ScriptedTts()))
    agent = Agent(
        id="a", organization_id="o", created_at=utc_now(), updated_at=utc_now(), name="a",
        post_call_summary_enabled=True, post_call_extraction_schema=[DAY, GUESTS],
    )  # fmt: skip
    analyses = [
        asyncio.create_task(analyst.analyze(f"ended {number}", agent, LONG, asyncio.Event())) for number in range(6)
    ]
    await asyncio.to_thread(works.wait, 20)
    assert await first_words("talks") <= alone + 1
    for analysis, usage in await asyncio.gather(*analyses):
        assert analysis["method"] == "model", analysis
        assert set(analysis["extractions"]) == {"day", "guests"}
        assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
