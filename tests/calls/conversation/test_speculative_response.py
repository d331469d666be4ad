"""Speculative responses, begun before the end of the caller's turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from calls.conversation.config import ConversationConfig
from calls.conversation.dtmf_collector import DtmfEntry
from calls.metrics import SPECULATIONS
from calls.tools.toolset import ToolResult
from config.errors import ModelError
from models.protocols import ChatMessage, TextDelta, ToolCall, ToolDefinition
from tests.fakes.scripted_call import WORD_MS, ScriptedCall, settle

Begin = Callable[..., ScriptedCall]
LISTENS = ConversationConfig("You help.")


class CountingTool:
    """A tool that counts its calls."""

    def __init__(self, name: str, *, effects: bool) -> None:
        self.definition = ToolDefinition(name, "", {"type": "object", "properties": {}})
        self.has_effects = effects
        self.used = self.given_up = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.used += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return ToolResult(f"used {self.used}", ok=True)


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    started: list[ScriptedCall] = []

    def make(config: ConversationConfig, *answers: Any, **more: Any) -> ScriptedCall:
        started.append(ScriptedCall(config, *answers, **more))
        return started[-1]

    yield make
    for call in started:
        await call.close()


def counted() -> tuple[float, float]:
    """Returns the counts of used and wasted speculative responses."""
    return (
        SPECULATIONS.labels(outcome="used")._value.get(),
        SPECULATIONS.labels(outcome="wasted")._value.get(),
    )


async def test_the_response_and_its_first_sentence_are_ready_before_the_turn_is_over(begin: Begin) -> None:
    used, wasted = counted()
    call = begin(LISTENS, "We open at nine. We close at five.")
    await call.starts_speaking()
    await call.falls_silent("when do you open")
    assert [prompt.messages[-1].content for prompt in call.llm.prompts] == ["when do you open"]
    assert call.tts.spoken == ["We open at nine."]
    await call.stops_speaking("when do you open")
    await call.play(4 * WORD_MS)
    assert call.items == [("user", "when do you open"), ("assistant", "We open at nine.")]
    assert len(call.llm.prompts) == 1
    assert counted() == (used + 1, wasted)
    assert call.conversation.timeline.items()[0]["speculated"] is True


async def test_a_speculative_response_is_not_played_or_stored_before_the_turn_is_over(begin: Begin) -> None:
    call = begin(LISTENS, "We open at nine.")
    await call.starts_speaking()
    await call.falls_silent("when do you open")
    await call.play(1000)
    assert call.written_ms == 0
    assert call.items == []
    assert call.conversation.timeline.items() == []


async def test_a_caller_who_goes_on_drops_it(begin: Begin) -> None:
    used, wasted = counted()
    call = begin(LISTENS, "At nine.", "Yes, on Sundays too.")
    await call.starts_speaking()
    await call.falls_silent("when do you open")
    await call.goes_on()
    assert call.llm.closed == 1
    await call.stops_speaking("when do you open on Sundays")
    await call.play(6 * WORD_MS)
    assert call.items == [("user", "when do you open on Sundays"), ("assistant", "Yes, on Sundays too.")]
    assert counted() == (used, wasted + 1)


async def test_another_text_at_the_end_of_the_turn_drops_it(begin: Begin) -> None:
    used, wasted = counted()
    call = begin(LISTENS, "At nine.", "At ten.")
    await call.starts_speaking()
    await call.falls_silent("when do you open")
    await call.stops_speaking("when do you open today")
    await call.play(3 * WORD_MS)
    assert call.items == [("user", "when do you open today"), ("assistant", "At ten.")]
    assert counted() == (used, wasted + 1)


async def test_digits_in_between_drop_it(begin: Begin) -> None:
    used, wasted = counted()
    call = begin(LISTENS, "At nine.", "Four two.", "You are welcome.")
    await call.starts_speaking()
    await call.falls_silent("when do you open")
    call.events.put(DtmfEntry("42"))
    await settle()
    await call.play(100)
    assert call.items[0] == ("user", "42")
    assert counted() == (used, wasted + 1)
    await call.stops_speaking("when do you open")
    await call.play(5 * WORD_MS)
    assert call.items[-1] == ("assistant", "You are welcome.")


async def test_a_dropped_turn_drops_it_without_a_response(begin: Begin) -> None:
    _, wasted = counted()
    call = begin(LISTENS, "At nine.")
    await call.starts_speaking()
    await call.falls_silent("when")
    await call.makes_noise()
    await call.play(1000)
    assert (call.items, call.written_ms) == ([], 0)
    assert counted()[1] == wasted + 1


async def test_silence_without_words_begins_no_response(begin: Begin) -> None:
    call = begin(LISTENS)
    await call.starts_speaking()
    await call.falls_silent(" ")
    assert call.llm.prompts == []


async def test_no_tool_with_effects_is_used_before_the_turn_is_over(begin: Begin) -> None:
    tool = CountingTool("book", effects=True)
    call = begin(LISTENS, [ToolCall("1", "book", "{}")], "It is booked.", tools=[tool])
    await call.starts_speaking()
    await call.falls_silent("book a table")
    assert (len(call.llm.prompts), tool.used) == (1, 0)
    await call.stops_speaking("book a table")
    assert tool.used == 1
    await call.play(4 * WORD_MS)
    assert call.items == [("user", "book a table"), ("assistant", "It is booked.")]


async def test_a_tool_without_effects_runs_at_once_and_is_recorded_with_the_turn(begin: Begin) -> None:
    tool = CountingTool("look_up", effects=False)
    tool_call = ToolCall("1", "look_up", "{}")
    call = begin(LISTENS, [tool_call], "At nine.", [tool_call], "At ten.", "Bye.", tools=[tool])
    await call.starts_speaking()
    await call.falls_silent("when do you open")
    assert tool.used == 1
    await call.goes_on()
    await call.falls_silent("when do you open today")
    assert tool.used == 2
    await call.stops_speaking("when do you open today")
    await call.play(4 * WORD_MS)
    await call.says("thanks")
    assert list(call.llm.prompts[-1].messages) == [
        ChatMessage("user", "when do you open today"),
        ChatMessage("assistant", "", tool_calls=(tool_call,)),
        ChatMessage("tool", "used 2", tool_call_id="1"),
        ChatMessage("assistant", "At ten."),
        ChatMessage("user", "thanks"),
    ]
    assert [len(turn["tools"]) for turn in call.conversation.timeline.items()] == [1, 0]


async def test_a_turn_that_goes_on_before_its_response_is_played_is_answered_as_one(begin: Begin) -> None:
    call = begin(LISTENS, "At nine.", "On Sundays at ten.")
    call.tts.ungated_sentences = 0
    await call.says("when do you open")
    await call.starts_speaking()
    await call.falls_silent("on Sundays")
    assert call.llm.prompts[-1].messages == (ChatMessage("user", "when do you open on Sundays"),)
    call.tts.gate.set()
    await call.stops_speaking("on Sundays")
    await call.play(5 * WORD_MS)
    assert call.items == [("user", "when do you open on Sundays"), ("assistant", "On Sundays at ten.")]
    assert len(call.llm.prompts) == 2


async def test_a_speculative_response_without_words_ends_regularly(begin: Begin) -> None:
    call = begin(LISTENS, [TextDelta("")], "Yes.")
    await call.starts_speaking()
    await call.falls_silent("well")
    await call.stops_speaking("well")
    await call.says("hello")
    await call.play(2 * WORD_MS)
    assert call.items == [("user", "well"), ("user", "hello"), ("assistant", "Yes.")]


async def test_a_failed_speculative_response_does_not_end_the_call(begin: Begin) -> None:
    call = begin(LISTENS, ModelError("out of memory"), "At nine.")
    await call.starts_speaking()
    await call.falls_silent("when do you open")
    assert not call.run.done()
    await call.stops_speaking("when do you open")
    await call.play(3 * WORD_MS)
    assert call.items == [("user", "when do you open"), ("assistant", "At nine.")]


async def test_a_failed_flush_of_the_recognizer_does_not_end_the_call(begin: Begin) -> None:
    call = begin(LISTENS, "At nine.")
    call.stt.flush_error = ModelError("not now")
    await call.starts_speaking()
    with capture_logs() as logs:
        await call.falls_silent("when do you open")
        await call.stops_speaking("when do you open")
        await call.play(3 * WORD_MS)
    assert call.items[-1] == ("assistant", "At nine.")
    assert ("speculative_response.failed", "guess.failed") in {
        (each["event"], each.get("deprecated_event")) for each in logs
    }


async def test_a_response_that_fails_after_its_confirmation_ends_the_call(begin: Begin) -> None:
    call = begin(LISTENS, RuntimeError("out of memory"))
    await call.says("when do you open")
    with pytest.raises(ExceptionGroup):
        await call.run


async def test_a_dropped_speculative_response_leaves_no_tasks(begin: Begin) -> None:
    tool = CountingTool("book", effects=True)
    call = begin(LISTENS, [ToolCall("1", "book", "{}")], tools=[tool])
    await call.starts_speaking()
    before = len(asyncio.all_tasks())
    await call.falls_silent("book a table")
    assert len(asyncio.all_tasks()) > before
    await call.makes_noise()
    assert (len(asyncio.all_tasks()), tool.used) == (before, 0)


async def test_the_tool_of_a_dropped_speculative_response_is_cancelled(begin: Begin) -> None:
    tool = CountingTool("look_up", effects=False)
    tool.gate.clear()
    tool_call = ToolCall("1", "look_up", "{}")
    call = begin(LISTENS, [tool_call], [tool_call], [tool_call], [tool_call], tools=[tool])
    await call.starts_speaking()
    for words in ("when", "when do", "when do you"):
        await call.falls_silent(words)
        await call.goes_on()
    await call.falls_silent("when do you open")
    assert (tool.used, tool.given_up) == (4, 3)
