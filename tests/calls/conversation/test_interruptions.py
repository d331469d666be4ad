"""Interruptions: barge-ins, turns that go on, and speech during the goodbye."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bench.turn.scripted_models import HANG_UP
from calls.conversation.config import ConversationConfig
from calls.conversation.dtmf_collector import DtmfEntry
from calls.metrics import BARGE_IN
from calls.tools.builtin_tools import EndCallTool
from media.turn_taking.events import BargeIn, PlayoutPaused, SpeechStarted, TurnDropped
from models.protocols import ChatMessage, TextDelta, ToolCall
from tests.fakes.scripted_call import WORD_MS, ScriptedCall, settle

Begin = Callable[..., ScriptedCall]
LISTENS = ConversationConfig("You help.")


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    started: list[ScriptedCall] = []

    def make(config: ConversationConfig, *answers: Any, **more: Any) -> ScriptedCall:
        started.append(ScriptedCall(config, *answers, **more))
        return started[-1]

    yield make
    for call in started:
        await call.close()


async def test_a_response_without_a_played_word_leaves_the_turn_open(begin: Begin) -> None:
    call = begin(LISTENS, "At nine.", "On Sundays at ten.")
    await call.says("when do you open")
    await call.play(WORD_MS // 2)
    await call.interrupts()
    await call.stops_speaking("on Sundays")
    await call.play(5 * WORD_MS)
    assert call.items == [("user", "when do you open on Sundays"), ("assistant", "On Sundays at ten.")]
    assert call.conversation.transcript.turn_count == 1


async def test_a_partly_played_response_completes_the_turn(begin: Begin) -> None:
    call = begin(LISTENS, "At nine o'clock.", "At ten.")
    await call.says("when do you open")
    await call.play(2 * WORD_MS)
    await call.interrupts()
    await call.stops_speaking("on Sundays")
    assert call.items == [("user", "when do you open"), ("assistant", "At nine"), ("user", "on Sundays")]


async def test_an_interruption_is_timed_by_the_pause_of_the_playout(begin: Begin) -> None:
    before = BARGE_IN._sum.get()
    call = begin(LISTENS, "One two three four five.")
    await call.says("count")
    await call.play(2 * WORD_MS)
    began, paused = float(call.port.now_ms) - 120, float(call.port.now_ms)
    call.events.on_media_events([SpeechStarted(paused, began), PlayoutPaused(paused)])
    call.playout.pause(True)
    await call.play(300)
    call.playout.flush()
    call.events.on_media_events([BargeIn(float(call.port.now_ms), began)])
    await settle()
    (turn,) = call.conversation.timeline.items()
    assert turn["interrupted_ms"] == 2 * WORD_MS
    assert BARGE_IN._sum.get() - before == pytest.approx(0.12)


async def test_a_caller_who_interrupts_without_words_gets_the_repeat_prompt(begin: Begin) -> None:
    call = begin(LISTENS, "One two three four five.", "Six.")
    await call.says("count")
    await call.play(2 * WORD_MS)
    await call.interrupts()
    await call.stops_speaking("")
    await call.play(12 * WORD_MS)
    sorry = ("assistant", "Sorry, I did not get that. Could you say it again?")
    assert call.items == [("user", "count"), ("assistant", "One two"), sorry]
    await call.says("go on")
    await call.play(2 * WORD_MS)
    assert call.items[-2:] == [("user", "go on"), ("assistant", "Six.")]


async def test_a_call_does_not_end_while_the_caller_speaks(begin: Begin) -> None:
    call = begin(LISTENS, [TextDelta("Goodbye then."), HANG_UP], "At nine.")
    await call.says("goodbye")
    await call.play(WORD_MS)
    await call.starts_speaking()
    await call.play(3 * WORD_MS)
    assert not call.run.done()
    await call.stops_speaking("wait, when do you open")
    await call.play(3 * WORD_MS)
    assert not call.run.done()
    assert call.items[-1] == ("assistant", "At nine.")


async def test_a_noise_over_the_goodbye_only_delays_the_end(begin: Begin) -> None:
    call = begin(LISTENS, [TextDelta("Goodbye then."), HANG_UP])
    await call.says("goodbye")
    await call.play(WORD_MS)
    await call.starts_speaking()
    await call.play(3 * WORD_MS)
    await call.makes_noise()
    assert call.run.result() == "agent_ended"


async def test_a_response_that_is_resumed_and_suspended_at_once_stays_suspended(begin: Begin) -> None:
    call = begin(LISTENS, "At nine.")
    call.llm.gate.clear()
    await call.says("when do you open")
    await call.starts_speaking()
    call.llm.gate.set()
    await settle()
    now = float(call.port.now_ms)
    call.events.on_media_events([TurnDropped(now, "short"), SpeechStarted(now, now)])
    await settle()
    await call.play(300)
    assert call.written_ms == 0
    await call.makes_noise()
    await call.play(2 * WORD_MS)
    assert call.items[-1] == ("assistant", "At nine.")


async def test_an_interrupted_response_is_in_the_transcript_up_to_its_last_played_word(begin: Begin) -> None:
    call = begin(LISTENS, "One two three, four five. Six seven.", "Yes?")
    await call.says("count")
    await call.play(3 * WORD_MS + 60)
    await call.interrupts()
    await call.stops_speaking("stop")
    assert call.items == [("user", "count"), ("assistant", "One two three,"), ("user", "stop")]
    assert call.llm.prompts[1].messages[1] == ChatMessage("assistant", "One two three,")


async def test_a_response_that_is_cut_before_its_first_word_is_not_in_the_transcript(begin: Begin) -> None:
    call = begin(LISTENS, "One two.", "Yes?")
    await call.says("count")
    await call.play(WORD_MS - 20)
    await call.interrupts()
    assert call.items == [("user", "count")]


async def test_played_words_of_a_later_sentence_follow_the_sentences_before_it(begin: Begin) -> None:
    call = begin(LISTENS, "One two. Three four. Five six.")
    await call.says("count")
    await call.play(3 * WORD_MS)
    await call.interrupts()
    assert call.items[-1] == ("assistant", "One two. Three")


async def test_nothing_of_a_cancelled_response_is_spoken_later(begin: Begin) -> None:
    call = begin(LISTENS, "One two. Three four. Five six.", "Yes?")
    call.tts.ungated_sentences = 1
    await call.says("count")
    await call.play(WORD_MS)
    await call.interrupts()
    written = call.written_ms
    call.tts.gate.set()
    await call.play(1000)
    assert call.written_ms == written
    assert call.tts.spoken == ["One two.", "Three four."]
    assert call.llm.closed == 1


async def test_a_cancelled_response_closes_its_language_model_stream(begin: Begin) -> None:
    call = begin(LISTENS, "Too early.", "Yes.")
    call.llm.gate.clear()
    await call.says("one")
    await call.says("two")
    assert (len(call.llm.prompts), call.llm.closed) == (2, 1)


async def test_audio_written_between_the_flush_and_its_event_is_not_played(begin: Begin) -> None:
    call = begin(LISTENS, "One two. Three four.", "Yes?")
    call.tts.ungated_sentences = 1
    await call.says("count")
    await call.play(WORD_MS)
    call.playout.flush()
    call.tts.gate.set()
    await settle()
    assert call.written_ms == 2 * WORD_MS
    await call.interrupts()
    await call.play(500)
    assert call.items[-1] == ("assistant", "One")
    assert not call.port.sent(call.slot)[-4000:].any()


async def test_digits_do_not_resume_a_greeting_while_the_caller_speaks(begin: Begin) -> None:
    call = begin(
        ConversationConfig("You help.", greeting="Good morning.", speaks_first=True, first_message_delay_ms=200)
    )
    await call.starts_speaking()
    call.events.put(DtmfEntry("80"))
    await asyncio.sleep(0.3)
    await settle()
    assert call.written_ms == 0
    await call.makes_noise()
    await call.play(3 * WORD_MS)
    assert call.items == [("user", "80"), ("assistant", "Good morning.")]


async def test_a_turn_that_goes_on_after_a_tool_call_is_one_message_for_the_model(begin: Begin) -> None:
    tool_call = ToolCall("1", "nonsense", "{}")
    call = begin(LISTENS, [tool_call], "At nine.", "On Sundays at ten.", tools=[EndCallTool()], may_end_call=False)
    call.tts.ungated_sentences = 0
    await call.says("when do you open")
    await call.says("on Sundays")
    assert call.llm.prompts[-1].messages[-1] == ChatMessage("user", "when do you open on Sundays")
    assert [message.role for message in call.llm.prompts[-1].messages] == ["assistant", "tool", "user"]


async def test_an_interrupted_sentence_ends_where_its_audio_stopped(begin: Begin) -> None:
    call = begin(LISTENS, "One two three four five. Six seven.")
    answer_ms = call.conversation.timeline.zero_ms
    await call.says("count")
    began = call.port.now_ms - answer_ms
    await call.play(2 * WORD_MS)
    call.playout.pause(True)
    await call.play(300)
    await call.interrupts()
    (_, line) = call.conversation.transcript.items()
    assert line == {"role": "assistant", "content": "One two", "startMs": began, "endMs": began + 2 * WORD_MS}
