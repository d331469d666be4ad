"""Prefill of the language model's prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from calls.conversation.config import ConversationConfig
from calls.conversation.prompt_prefill import PromptPrefill
from config.errors import ModelError
from models.protocols import ChatMessage, ChatPrompt, LlmOutput
from tests.fakes.scripted_call import WORD_MS, ScriptedCall, ScriptedLlm, settle

LISTENS = ConversationConfig("You help.")
GREETS = ConversationConfig("You help.", greeting="Good morning to you.", speaks_first=True)
OPEN = ("user", "when do you open")


class Preparing(ScriptedLlm):
    """A model whose prefill runs until it is stopped."""

    def __init__(self, *answers: str | Sequence[LlmOutput] | Exception) -> None:
        super().__init__(*answers)
        self.read: list[list[tuple[str, str]]] = []
        self.reads = 0
        self.error: Exception | None = None

    async def prefill(self, prompt: ChatPrompt) -> None:
        self.read.append([(message.role, message.content) for message in prompt.messages])
        self.reads += 1
        try:
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()
        finally:
            self.reads -= 1

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        assert self.reads == 0, "it prefills while it responds"
        async for part in super().respond(prompt):
            yield part


Begin = Callable[..., tuple[ScriptedCall, Preparing]]


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    started: list[ScriptedCall] = []

    def make(config: ConversationConfig, *answers: str | Exception, **more: Any) -> tuple[ScriptedCall, Preparing]:
        language = Preparing(*answers)
        started.append(ScriptedCall(config, model=language, **more))
        return started[-1], language

    yield make
    for call in started:
        await call.close()


async def test_the_played_part_of_a_response_is_prefilled_until_the_callers_turn_ends(begin: Begin) -> None:
    call, language = begin(LISTENS, "At nine.", "At five.")
    await call.says("when do you open")
    assert language.read == []
    await call.play(5 * WORD_MS)
    assert language.read == [[OPEN, ("assistant", "At nine.")]]
    await call.starts_speaking()
    assert language.reads == 1
    await call.stops_speaking("and close")
    assert language.reads == 0
    assert [message.content for message in language.prompts[1].messages][:2] == ["when do you open", "At nine."]


async def test_words_that_were_not_played_are_not_prefilled(begin: Begin) -> None:
    call, language = begin(LISTENS, "We open at nine in the morning.")
    await call.says("when do you open")
    await call.play(3 * WORD_MS)
    await call.interrupts()
    assert language.read == [[OPEN, ("assistant", "We open at")]]


async def test_the_greeting_is_prefilled_once_it_was_played(begin: Begin) -> None:
    call, language = begin(GREETS)
    await call.play(10 * WORD_MS)
    assert language.read == [[("assistant", "Good morning to you.")]]


async def test_a_speculative_response_stops_the_prefill(begin: Begin) -> None:
    call, language = begin(GREETS, "At nine.")
    await call.play(10 * WORD_MS)
    await call.starts_speaking()
    assert language.reads == 1
    await call.falls_silent("when do you open")
    assert (language.reads, len(language.prompts)) == (0, 1)


async def test_words_that_cut_a_response_are_answered_without_a_prefill(begin: Begin) -> None:
    call, language = begin(LISTENS, "At nine.", "At five.")
    await call.says("when do you open")
    await call.play(WORD_MS)
    await call.says("and close")
    assert language.read == []
    assert len(language.prompts) == 2


async def test_nothing_is_prefilled_after_the_call(begin: Begin) -> None:
    call, language = begin(LISTENS, "At nine.")
    await call.says("when do you open")
    await call.play(5 * WORD_MS)
    await call.close()
    call.conversation.close()
    await settle()
    assert language.reads == 0


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (ModelError("too busy"), ("prompt_prefill.failed", "info", "ahead.failed")),
        (ValueError("ours"), ("prompt_prefill.error", "error", "ahead.broken")),
    ],
)
async def test_a_failed_prefill_is_only_logged(begin: Begin, error: Exception, event: tuple[str, ...]) -> None:
    call, language = begin(GREETS, "At nine.")
    language.error = error
    with capture_logs() as logs:
        await call.play(10 * WORD_MS)
    found = [entry for entry in logs if entry["event"].startswith("prompt_prefill.")]
    assert [(each["event"], each["log_level"], each["deprecated_event"]) for each in found] == [event]
    await call.says("when do you open")
    await call.play(5 * WORD_MS)
    assert call.items[-1] == ("assistant", "At nine.")


async def test_a_model_without_prefill_is_not_asked() -> None:
    ahead = PromptPrefill(ScriptedLlm())
    before = len(asyncio.all_tasks())
    ahead.start(ChatPrompt("c", "You help.", [ChatMessage("user", "hi")]))
    assert len(asyncio.all_tasks()) == before
    ahead.close()
