"""Tools in conversations: order of words and tool calls, fillers, and results in the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from bench.turn.scripted_models import HANG_UP
from calls.conversation.config import ConversationConfig
from calls.conversation.response_generator import STILL_RUNNING
from calls.conversation.tool_loop import FILLER_AFTER_S, MAX_TOOL_CALLS, MAX_TOOL_ROUNDS
from calls.tools.builtin_tools import SendDtmfTool
from calls.tools.http_response import MASK
from calls.tools.toolset import ToolResult
from models.protocols import ChatMessage, TextDelta, ToolCall, ToolDefinition
from tests.fakes.scripted_call import WORD_MS, ScriptedCall, settle

Begin = Callable[..., ScriptedCall]
LISTENS = ConversationConfig("You help.")
LOOK_UP = ToolCall("1", "look_up", '{"number": 4711}')


class GatedTool:
    """A tool that returns when its gate is open, and records its arguments."""

    definition = ToolDefinition(
        "look_up", "Looks up an order.", {"type": "object", "properties": {"number": {"type": "integer"}}}
    )
    has_effects = True

    def __init__(self) -> None:
        self.given: list[Mapping[str, Any]] = []
        self.result = ToolResult("shipped", ok=True)
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.given.append(arguments)
        await self.gate.wait()
        return self.result


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    started: list[ScriptedCall] = []

    def make(config: ConversationConfig, *answers: Any, may_end_call: bool = False, **more: Any) -> ScriptedCall:
        started.append(ScriptedCall(config, *answers, may_end_call=may_end_call, **more))
        return started[-1]

    yield make
    for call in started:
        await call.close()


async def test_the_model_is_asked_again_with_the_result(begin: Begin) -> None:
    tool = GatedTool()
    call = begin(LISTENS, [LOOK_UP], "It is on its way.", tools=[tool])
    await call.says("where is my order")
    await call.play(6 * WORD_MS)
    assert tool.given == [{"number": 4711}]
    assert call.items == [("user", "where is my order"), ("assistant", "It is on its way.")]
    assert call.llm.prompts[0].tools == (tool.definition,)
    assert call.llm.prompts[1].messages == (
        ChatMessage("user", "where is my order"),
        ChatMessage("assistant", "", tool_calls=(LOOK_UP,)),
        ChatMessage("tool", "shipped", tool_call_id="1"),
    )


async def test_words_before_a_tool_call_are_played_at_once_and_are_a_line_of_their_own(begin: Begin) -> None:
    tool = GatedTool()
    tool.gate.clear()
    call = begin(LISTENS, [TextDelta("Let me see"), LOOK_UP], "It is shipped.", "Bye.", tools=[tool])
    await call.says("where is my order")
    await call.play(4 * WORD_MS)
    assert call.items[1:] == [("assistant", "Let me see")]
    tool.gate.set()
    await settle()
    await call.play(4 * WORD_MS)
    assert call.items[1:] == [("assistant", "Let me see"), ("assistant", "It is shipped.")]
    await call.says("thanks")
    assert [(m.role, m.content) for m in call.llm.prompts[-1].messages] == [
        ("user", "where is my order"),
        ("assistant", "Let me see"),
        ("assistant", ""),
        ("tool", "shipped"),
        ("assistant", "It is shipped."),
        ("user", "thanks"),
    ]


async def test_one_filler_is_spoken_for_slow_tools(begin: Begin) -> None:
    tool = GatedTool()
    tool.gate.clear()
    call = begin(LISTENS, [LOOK_UP], [LOOK_UP], "It is shipped.", tools=[tool])
    await call.says("where is my order")
    await call.tts.until_spoken(1)
    await call.play(4 * WORD_MS)
    assert call.items[1:] == [("assistant", "One moment, please.")]
    tool.gate.set()
    await settle()
    await call.play(4 * WORD_MS)
    assert call.items[1:] == [("assistant", "One moment, please."), ("assistant", "It is shipped.")]
    assert call.tts.spoken == ["One moment, please.", "It is shipped."]


async def test_the_agent_counts_as_silent_while_it_waits_for_a_tool(begin: Begin) -> None:
    tool = GatedTool()
    tool.gate.clear()
    call = begin(LISTENS, [TextDelta("Let me see."), LOOK_UP], "It is shipped.", tools=[tool])
    await call.says("where is my order")
    await call.play(5 * WORD_MS)
    assert call.items[1:] == [("assistant", "Let me see.")]
    assert not call.port.more(call.slot)


async def test_the_response_waits_for_a_caller_who_speaks_meanwhile(begin: Begin) -> None:
    tool = GatedTool()
    tool.gate.clear()
    call = begin(LISTENS, [TextDelta("Let me see."), LOOK_UP], "It is shipped.", tools=[tool])
    await call.says("where is my order")
    await call.play(5 * WORD_MS)
    await call.starts_speaking()
    tool.gate.set()
    await settle()
    await call.play(3 * WORD_MS)
    assert call.items[1:] == [("assistant", "Let me see.")]
    await call.makes_noise()
    await call.play(4 * WORD_MS)
    assert call.items[1:] == [("assistant", "Let me see."), ("assistant", "It is shipped.")]


async def test_a_tools_failure_is_a_result_for_the_model(begin: Begin) -> None:
    tool = GatedTool()
    tool.result = ToolResult("The tool answered with status 500.", ok=False)
    call = begin(LISTENS, [LOOK_UP], "I cannot look that up now.", tools=[tool])
    await call.says("where is my order")
    await call.play(7 * WORD_MS)
    result = call.llm.prompts[1].messages[-1]
    assert (result.content, result.ok) == ("The tool answered with status 500.", False)
    assert call.items[1:] == [("assistant", "I cannot look that up now.")]
    assert [use["ok"] for use in call.conversation.timeline.items()[0]["tools"]] == [False]


@pytest.mark.parametrize("arguments", ["{", "[1]", '{"number": "many"}', '{"colour": "red"}'])
async def test_invalid_arguments_never_reach_the_tool(begin: Begin, arguments: str) -> None:
    tool = GatedTool()
    call = begin(LISTENS, [ToolCall("1", "look_up", arguments)], "What is the number?", tools=[tool])
    await call.says("where is my order")
    assert tool.given == []
    assert call.llm.prompts[1].messages[-1].role == "tool"


async def test_a_running_tool_goes_on_when_the_caller_interrupts(begin: Begin) -> None:
    tool = GatedTool()
    tool.gate.clear()
    call = begin(LISTENS, [TextDelta("Let me see what I can find."), LOOK_UP], "Yes.", "Bye.", tools=[tool])
    await call.says("where is my order")
    await call.play(WORD_MS)
    await call.interrupts()
    await call.stops_speaking("hello")
    tool.gate.set()
    await settle()
    await call.play(2 * WORD_MS)
    await call.says("and now")
    assert "shipped" in [message.content for message in call.llm.prompts[-1].messages]
    assert len(call.llm.prompts) == 3, "no response follows a cut one"
    assert [len(turn["tools"]) for turn in call.conversation.timeline.items()] == [1, 0, 0]


async def test_after_the_maximum_of_tool_rounds_the_model_is_asked_without_tools(begin: Begin) -> None:
    tool = GatedTool()
    call = begin(LISTENS, *[[LOOK_UP]] * MAX_TOOL_ROUNDS, "Well.", tools=[tool])
    await call.says("where is my order")
    await call.play(2 * WORD_MS)
    assert len(tool.given) == MAX_TOOL_ROUNDS
    assert call.llm.prompts[-1].tools == ()
    assert call.items[-1] == ("assistant", "Well.")


async def test_the_results_of_one_round_are_in_the_order_of_the_calls(begin: Begin) -> None:
    tool = GatedTool()
    second = ToolCall("2", "look_up", "{}")
    call = begin(LISTENS, [LOOK_UP, second], "Both are shipped.", tools=[tool])
    await call.says("where are my orders")
    assert [m.tool_call_id for m in call.llm.prompts[1].messages[-2:]] == ["1", "2"]


async def test_a_running_tool_is_cancelled_at_the_calls_end(begin: Begin) -> None:
    tool = GatedTool()
    tool.gate.clear()
    call = begin(LISTENS, [LOOK_UP], [TextDelta("Bye."), HANG_UP], tools=[tool], may_end_call=True)
    await call.says("where is my order")
    await call.says("never mind, goodbye")
    await call.play(2 * WORD_MS)
    assert await asyncio.wait_for(call.run, 1) == "agent_ended"


async def test_the_response_after_a_tool_waits_for_a_caller_who_spoke_over_the_words_before_it(begin: Begin) -> None:
    tool = GatedTool()
    tool.gate.clear()
    call = begin(LISTENS, [TextDelta("Let me see."), LOOK_UP], "It is shipped.", tools=[tool])
    await call.says("where is my order")
    await call.play(2 * WORD_MS)
    await call.starts_speaking()
    await call.play(3 * WORD_MS)
    tool.gate.set()
    await settle()
    await call.play(3 * WORD_MS)
    assert call.items[1:] == [("assistant", "Let me see.")]
    await call.makes_noise()
    await call.play(4 * WORD_MS)
    assert call.items[1:] == [("assistant", "Let me see."), ("assistant", "It is shipped.")]


async def test_the_prompt_has_a_tool_that_is_still_running(begin: Begin) -> None:
    tool = GatedTool()
    tool.gate.clear()
    call = begin(LISTENS, [TextDelta("Let me book that for you now."), LOOK_UP], "Yes.", tools=[tool])
    await call.says("book it")
    await call.play(WORD_MS)
    await call.interrupts()
    await call.stops_speaking("hello")
    called, pending, said = call.llm.prompts[-1].messages[-3:]
    assert (called.tool_calls, pending.content, said.content) == ((LOOK_UP,), STILL_RUNNING, "hello")
    tool.gate.set()
    await settle()
    await call.play(2 * WORD_MS)
    await call.says("thanks")
    assert STILL_RUNNING not in [message.content for message in call.llm.prompts[-1].messages]


async def test_a_backchannel_while_a_tool_runs_gets_no_response(begin: Begin) -> None:
    tool = GatedTool()
    tool.gate.clear()
    call = begin(LISTENS, [TextDelta("Let me book that."), LOOK_UP], "It is booked.", tools=[tool])
    await call.says("book it")
    await call.play(6 * WORD_MS)
    await call.says("okay")
    tool.gate.set()
    await settle()
    await call.play(4 * WORD_MS)
    assert (len(tool.given), len(call.llm.prompts)) == (1, 2)
    assert call.items[1:] == [("assistant", "Let me book that."), ("user", "okay"), ("assistant", "It is booked.")]


@pytest.mark.parametrize("order", [0, 1])
async def test_tools_called_together_with_end_call_run_first(begin: Begin, order: int) -> None:
    tool = GatedTool()
    both = [LOOK_UP, HANG_UP] if order else [HANG_UP, LOOK_UP, TextDelta("And more.")]
    call = begin(LISTENS, [TextDelta("Goodbye."), *both], tools=[tool], may_end_call=True)
    await call.says("goodbye")
    await call.play(2 * WORD_MS)
    assert await asyncio.wait_for(call.run, 1) == "agent_ended"
    assert len(tool.given) == 1
    assert call.tts.spoken == ["Goodbye."]


async def test_end_call_counts_in_the_last_round_too(begin: Begin) -> None:
    tool = GatedTool()
    call = begin(LISTENS, *[[LOOK_UP]] * MAX_TOOL_ROUNDS, [HANG_UP], tools=[tool], may_end_call=True)
    await call.says("where is my order")
    assert await asyncio.wait_for(call.run, 1) == "agent_ended"


async def test_the_agent_apologizes_for_a_model_without_words_after_its_tools(begin: Begin) -> None:
    call = begin(LISTENS, [LOOK_UP], [], tools=[GatedTool()])
    await call.says("where is my order")
    await call.play(10 * WORD_MS)
    assert call.items[1:] == [("assistant", "I am sorry, I could not do that.")]


async def test_calls_beyond_the_maximum_of_a_round_are_refused(begin: Begin) -> None:
    tool = GatedTool()
    calls = [ToolCall(str(number), "look_up", "{}") for number in range(MAX_TOOL_CALLS + 3)]
    call = begin(LISTENS, calls, "Well.", tools=[tool])
    await call.says("where are all my orders")
    await call.play(2 * WORD_MS)
    assert len(tool.given) == MAX_TOOL_CALLS
    assert [line.ok for line in call.llm.prompts[1].messages[-4:]] == [True, False, False, False]


async def test_the_fillers_delay_counts_from_the_confirmation(begin: Begin) -> None:
    tool = GatedTool()
    call = begin(LISTENS, [LOOK_UP], "It is booked.", tools=[tool])
    await call.starts_speaking()
    await call.falls_silent("book it")
    await asyncio.sleep(FILLER_AFTER_S + 0.1)
    await call.stops_speaking("book it")
    await call.play(4 * WORD_MS)
    assert call.items[1:] == [("assistant", "It is booked.")]


async def test_dtmf_is_sent_after_the_words_before_it(begin: Begin) -> None:
    pressed: list[tuple[str, int]] = []
    call: ScriptedCall

    async def press(keys: str) -> None:
        pressed.append((keys, call.written_ms))

    answer = [TextDelta("Pressing one for you."), ToolCall("1", "send_dtmf", '{"digits": "1"}')]
    call = begin(LISTENS, answer, "Done.", tools=[SendDtmfTool(press)])
    call.tts.ungated_sentences = 0
    await call.says("press one")
    assert pressed == []
    call.tts.gate.set()
    await settle()
    assert pressed == [("1", 4 * WORD_MS)]


async def test_an_invented_name_of_any_length_stays_short_in_the_timeline(begin: Begin) -> None:
    call = begin(LISTENS, [ToolCall("1", "x" * 10_000, "{}")], "Well.", tools=[GatedTool()])
    await call.says("hello")
    (turn,) = call.conversation.timeline.items()
    assert [len(use["name"]) for use in turn["tools"]] == [64]


async def test_the_timeline_keeps_arguments_and_result(begin: Begin) -> None:
    tool = GatedTool()
    tool.result = ToolResult("no such order", ok=False, secrets=frozenset({"4711"}))
    call = begin(LISTENS, [LOOK_UP], "There is none.", tools=[tool])
    await call.says("where is my order")
    await call.play(6 * WORD_MS)
    (kept,) = call.conversation.timeline.items()[0]["tools"]
    assert (kept["name"], kept["ok"], kept["result"]) == ("look_up", False, "no such order")
    assert kept["arguments"] == {"number": MASK}
