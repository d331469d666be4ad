"""Callers who interrupt, who go on, and who speak as the agent takes its leave."""

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
from media.turns.events import BargeIn, PlayoutPaused, SpeechStarted, TurnDropped
from models.protocols import ChatMessage, TextDelta, ToolCall
from tests.fakes.scripted_call import WORD_MS, Talk, settle

Begin = Callable[..., Talk]
LISTENS = ConversationConfig("You help.")


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    talks: list[Talk] = []

    def make(script: ConversationConfig, *answers: Any, **more: Any) -> Talk:
        talks.append(Talk(script, *answers, **more))
        return talks[-1]

    yield make
    for talk in talks:
        await talk.close()


async def test_an_answer_of_which_no_word_was_heard_was_none(begin: Begin) -> None:
    talk = begin(LISTENS, "At nine.", "On Sundays at ten.")
    await talk.says("when do you open")
    await talk.play(WORD_MS // 2)
    await talk.interrupts()
    await talk.stops_speaking("on Sundays")
    await talk.play(5 * WORD_MS)
    assert talk.items == [("user", "when do you open on Sundays"), ("assistant", "On Sundays at ten.")]
    assert talk.conversation.transcript.turn_count == 1


async def test_an_answer_that_was_heard_in_part_ends_the_turn(begin: Begin) -> None:
    talk = begin(LISTENS, "At nine o'clock.", "At ten.")
    await talk.says("when do you open")
    await talk.play(2 * WORD_MS)
    await talk.interrupts()
    await talk.stops_speaking("on Sundays")
    assert talk.items == [("user", "when do you open"), ("assistant", "At nine"), ("user", "on Sundays")]


async def test_an_interruption_is_as_old_as_the_silence_that_it_made(begin: Begin) -> None:
    before = BARGE_IN._sum.get()
    talk = begin(LISTENS, "One two three four five.")
    await talk.says("count")
    await talk.play(2 * WORD_MS)
    began, paused = float(talk.port.now_ms) - 120, float(talk.port.now_ms)
    talk.inbox.media_events([SpeechStarted(paused, began), PlayoutPaused(paused)])
    talk.playout.pause(True)
    await talk.play(300)
    talk.playout.flush()
    talk.inbox.media_events([BargeIn(float(talk.port.now_ms), began)])
    await settle()
    (turn,) = talk.conversation.timeline.items()
    assert turn["interrupted_ms"] == 2 * WORD_MS
    assert BARGE_IN._sum.get() - before == pytest.approx(0.12)


async def test_who_interrupts_and_is_not_understood_is_asked_to_say_it_again(begin: Begin) -> None:
    talk = begin(LISTENS, "One two three four five.", "Six.")
    await talk.says("count")
    await talk.play(2 * WORD_MS)
    await talk.interrupts()
    await talk.stops_speaking("")
    await talk.play(12 * WORD_MS)
    sorry = ("assistant", "Sorry, I did not get that. Could you say it again?")
    assert talk.items == [("user", "count"), ("assistant", "One two"), sorry]
    await talk.says("go on")
    await talk.play(2 * WORD_MS)
    assert talk.items[-2:] == [("user", "go on"), ("assistant", "Six.")]


async def test_nobody_hangs_up_on_a_caller_who_speaks(begin: Begin) -> None:
    talk = begin(LISTENS, [TextDelta("Goodbye then."), HANG_UP], "At nine.")
    await talk.says("goodbye")
    await talk.play(WORD_MS)
    await talk.starts_speaking()
    await talk.play(3 * WORD_MS)
    assert not talk.run.done()
    await talk.stops_speaking("wait, when do you open")
    await talk.play(3 * WORD_MS)
    assert not talk.run.done()
    assert talk.items[-1] == ("assistant", "At nine.")


async def test_a_noise_over_the_goodbye_only_delays_the_end(begin: Begin) -> None:
    talk = begin(LISTENS, [TextDelta("Goodbye then."), HANG_UP])
    await talk.says("goodbye")
    await talk.play(WORD_MS)
    await talk.starts_speaking()
    await talk.play(3 * WORD_MS)
    await talk.makes_noise()
    assert talk.run.result() == "agent_ended"


async def test_an_answer_that_is_let_go_and_held_at_once_stays_held(begin: Begin) -> None:
    talk = begin(LISTENS, "At nine.")
    talk.language.gate.clear()
    await talk.says("when do you open")
    await talk.starts_speaking()
    talk.language.gate.set()
    await settle()
    now = float(talk.port.now_ms)
    talk.inbox.media_events([TurnDropped(now, "short"), SpeechStarted(now, now)])
    await settle()
    await talk.play(300)
    assert talk.written_ms == 0
    await talk.makes_noise()
    await talk.play(2 * WORD_MS)
    assert talk.items[-1] == ("assistant", "At nine.")


async def test_an_interrupted_answer_is_kept_up_to_the_last_word_that_was_heard(begin: Begin) -> None:
    talk = begin(LISTENS, "One two three, four five. Six seven.", "Yes?")
    await talk.says("count")
    await talk.play(3 * WORD_MS + 60)
    await talk.interrupts()
    await talk.stops_speaking("stop")
    assert talk.items == [("user", "count"), ("assistant", "One two three,"), ("user", "stop")]
    assert talk.language.prompts[1].messages[1] == ChatMessage("assistant", "One two three,")


async def test_an_answer_that_was_cut_before_its_first_word_was_never_said(begin: Begin) -> None:
    talk = begin(LISTENS, "One two.", "Yes?")
    await talk.says("count")
    await talk.play(WORD_MS - 20)
    await talk.interrupts()
    assert talk.items == [("user", "count")]


async def test_words_of_a_later_sentence_are_kept_with_the_sentences_before_it(begin: Begin) -> None:
    talk = begin(LISTENS, "One two. Three four. Five six.")
    await talk.says("count")
    await talk.play(3 * WORD_MS)
    await talk.interrupts()
    assert talk.items[-1] == ("assistant", "One two. Three")


async def test_nothing_of_a_cancelled_answer_is_spoken_later(begin: Begin) -> None:
    talk = begin(LISTENS, "One two. Three four. Five six.", "Yes?")
    talk.voice.free = 1
    await talk.says("count")
    await talk.play(WORD_MS)
    await talk.interrupts()
    written = talk.written_ms
    talk.voice.gate.set()
    await talk.play(1000)
    assert talk.written_ms == written
    assert talk.voice.spoken == ["One two.", "Three four."]
    assert talk.language.closed == 1


async def test_a_cancelled_answer_closes_its_language_model(begin: Begin) -> None:
    talk = begin(LISTENS, "Too early.", "Yes.")
    talk.language.gate.clear()
    await talk.says("one")
    await talk.says("two")
    assert (len(talk.language.prompts), talk.language.closed) == (2, 1)


async def test_sound_written_between_the_flush_and_its_news_is_not_heard(begin: Begin) -> None:
    talk = begin(LISTENS, "One two. Three four.", "Yes?")
    talk.voice.free = 1
    await talk.says("count")
    await talk.play(WORD_MS)
    talk.playout.flush()
    talk.voice.gate.set()
    await settle()
    assert talk.written_ms == 2 * WORD_MS
    await talk.interrupts()
    await talk.play(500)
    assert talk.items[-1] == ("assistant", "One")
    assert not talk.port.sent(talk.slot)[-4000:].any()


async def test_digits_let_no_greeting_out_over_the_caller(begin: Begin) -> None:
    talk = begin(
        ConversationConfig("You help.", greeting="Good morning.", speaks_first=True, first_message_delay_ms=200)
    )
    await talk.starts_speaking()
    talk.inbox.put(DtmfEntry("80"))
    await asyncio.sleep(0.3)
    await settle()
    assert talk.written_ms == 0
    await talk.makes_noise()
    await talk.play(3 * WORD_MS)
    assert talk.items == [("user", "80"), ("assistant", "Good morning.")]


async def test_a_turn_that_goes_on_after_a_tool_is_asked_of_the_model_as_a_whole(begin: Begin) -> None:
    call = ToolCall("1", "nonsense", "{}")
    talk = begin(LISTENS, [call], "At nine.", "On Sundays at ten.", tools=[EndCallTool()], may_end_call=False)
    talk.voice.free = 0
    await talk.says("when do you open")
    await talk.says("on Sundays")
    assert talk.language.prompts[-1].messages[-1] == ChatMessage("user", "when do you open on Sundays")
    assert [message.role for message in talk.language.prompts[-1].messages] == ["assistant", "tool", "user"]
