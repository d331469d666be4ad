"""A conversation with llama.cpp as its language model: random weights, constrained by grammar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from calls.conversation.config import ConversationConfig
from calls.tools.toolset import ToolResult
from models.llm.llama.bindings import Chunk, LlamaContext
from models.llm.llama.language_model import LlamaLanguageModel
from models.protocols import ChatPrompt, ToolDefinition
from tests.fakes.scripted_call import WORD_MS, ScriptedCall
from tests.models.llm.llama.tiny_gguf import write_tiny_gguf


class OrderDesk:
    """A tool with the status of every order."""

    definition = ToolDefinition(
        "look_up",
        "Looks up an order.",
        {
            "type": "object",
            "properties": {"number": {"type": "integer"}, "by": {"type": "string", "enum": ["name", "phone"]}},
            "required": ["number", "by"],
        },
    )
    has_effects = False

    def __init__(self) -> None:
        self.given: list[Mapping[str, Any]] = []
        self.asked = asyncio.Event()

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.given.append(arguments)
        self.asked.set()
        return ToolResult("It is on its way.", ok=True)


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[LlamaLanguageModel]:
    def load() -> LlamaLanguageModel:
        path = write_tiny_gguf(tmp_path / "tiny.gguf")
        return LlamaLanguageModel(
            path,
            sequences=4,
            context_length=2048,
            threads=1,
            max_tokens=120,
            forces_tool=lambda prompt: prompt.messages[-1].role == "user",
        )

    made = await asyncio.to_thread(load)
    yield made
    await asyncio.to_thread(made.close)


async def test_a_tool_call_has_valid_arguments_and_its_result_is_answered(model: LlamaLanguageModel) -> None:
    desk = OrderDesk()
    call = ScriptedCall(ConversationConfig("You help."), tools=[desk], may_end_call=False, model=model)
    await call.says("where is my order")
    async with asyncio.timeout(20):
        await desk.asked.wait()
        await call.tts.until_spoken(1)
    await call.play(20_000)
    await call.close()
    assert all(isinstance(given["number"], int) and given["by"] in ("name", "phone") for given in desk.given)
    assert call.items[0] == ("user", "where is my order")
    assert call.items[1][0] == "assistant"


async def test_after_an_interruption_the_prompt_has_only_the_played_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads only what follows them: its words that were not played are not in its KV cache."""
    path = await asyncio.to_thread(write_tiny_gguf, tmp_path / "tiny.gguf")
    model = await asyncio.to_thread(
        LlamaLanguageModel, path, sequences=2, context_length=2048, threads=1, max_tokens=60
    )
    prompts: list[list[tuple[str, str]]] = []
    read: list[int] = []
    tokenize_prompt, evaluate = model.tokenize_prompt, LlamaContext.evaluate

    def noted(prompt: ChatPrompt) -> list[int]:
        prompts.append([(message.role, message.content) for message in prompt.messages])
        return tokenize_prompt(prompt)

    def counted(context: LlamaContext, chunks: Sequence[Chunk]) -> list[int]:
        read.extend(len(chunk.tokens) for chunk in chunks if len(chunk.tokens) > 1)
        return evaluate(context, chunks)

    monkeypatch.setattr(model, "tokenize_prompt", noted)
    call = ScriptedCall(
        ConversationConfig("You are the assistant of a small hotel. " * 10), may_end_call=False, model=model
    )
    await call.says("when does the kitchen open")
    await call.tts.until_spoken(1)
    await call.play(2 * WORD_MS)
    monkeypatch.setattr(LlamaContext, "evaluate", counted)
    await call.interrupts()
    await call.stops_speaking("and on Sundays")
    heard = call.items[1]
    await call.tts.until_spoken(2)
    await call.close()
    await asyncio.to_thread(model.close)
    assert prompts[1] == [("user", "when does the kitchen open"), heard, ("user", "and on Sundays")]
    assert len(heard[1].split()) <= 2
    assert sum(read) < 100
