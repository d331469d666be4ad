"""The conversation loop, with scripted models on a real playout."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from bench.turn.scripted_models import HANG_UP
from calls import metrics
from calls.call_record.timeline import ResponseTiming
from calls.conversation.agent_response import AgentResponse
from calls.conversation.config import ConversationConfig
from calls.conversation.dtmf_collector import DtmfEntry
from calls.conversation.event_queue import ResponseFinished
from calls.conversation.speech_output import SpeechOutput
from calls.conversation.stock_phrases import stock_phrases
from calls.conversation.tool_loop import scripted_parts
from config.errors import ModelError
from media.engine.call_audio import AudioFailure
from models.protocols import AnswerPart, ChatMessage, ChatPrompt, TextDelta, VoiceSettings
from tests.fakes.scripted_call import RATE, WORD_MS, ScriptedLanguage, Talk, settle

Begin = Callable[..., Talk]
LISTENS = ConversationConfig("You help.")


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    talks: list[Talk] = []

    def make(script: ConversationConfig, *answers: str | Sequence[AnswerPart] | Exception, **more: Any) -> Talk:
        talks.append(Talk(script, *answers, **more))
        return talks[-1]

    yield make
    for talk in talks:
        await talk.close()


def greeting(**changes: object) -> ConversationConfig:
    return ConversationConfig("You help.", **{"greeting": "Good morning to you.", "speaks_first": True, **changes})  # type: ignore[arg-type]


# ---- the first speaker ----


async def test_an_agent_that_listens_first_says_nothing_until_the_caller_has_spoken(begin: Begin) -> None:
    talk = begin(LISTENS, "Hello caller.")
    await settle()
    assert talk.written_ms == 0
    await talk.says("hello")
    await talk.play(2 * WORD_MS)
    assert talk.items == [("user", "hello"), ("assistant", "Hello caller.")]


async def test_the_custom_greeting_opens_the_talk_without_asking_the_language_model(begin: Begin) -> None:
    talk = begin(greeting())
    await settle()
    await talk.play(4 * WORD_MS)
    assert talk.items == [("assistant", "Good morning to you.")]
    assert talk.language.prompts == []


async def test_without_a_custom_greeting_the_language_model_opens_the_talk(begin: Begin) -> None:
    talk = begin(greeting(greeting=None), "Hello from the model.")
    await settle()
    await talk.play(4 * WORD_MS)
    assert talk.items == [("assistant", "Hello from the model.")]
    assert list(talk.language.prompts[0].messages) == []
    assert talk.language.prompts[0].system == "You help."


async def test_the_first_message_waits_for_its_delay(begin: Begin) -> None:
    talk = begin(greeting(first_message_delay_ms=3_600_000))
    await settle()
    assert talk.voice.spoken == ["Good morning to you."], "it is made ready during the delay"
    assert talk.written_ms == 0


async def test_a_caller_who_speaks_during_the_delay_still_hears_the_greeting_afterwards(begin: Begin) -> None:
    talk = begin(greeting(first_message_delay_ms=0))
    await talk.starts_speaking()
    assert talk.written_ms == 0
    await talk.stops_speaking("hello there")
    await talk.play(4 * WORD_MS)
    assert talk.items == [("user", "hello there"), ("assistant", "Good morning to you.")]
    assert talk.language.prompts == []


async def test_an_uninterruptible_first_message_is_protected_from_its_first_sample_to_its_end(begin: Begin) -> None:
    talk = begin(greeting(first_message_uninterruptible=True))
    await settle()
    assert talk.protected == [(True, 0)]
    await talk.play(4 * WORD_MS - 20)
    assert len(talk.protected) == 1
    await talk.play(20)
    assert talk.protected[1:] == [(False, talk.port.written(talk.slot))]


async def test_a_first_message_that_is_thought_over_again_stays_protected(begin: Begin) -> None:
    talk = begin(greeting(greeting=None, first_message_uninterruptible=True), "Hello.", "Hello to you.")
    talk.language.gate.clear()
    await talk.says("hello?")
    talk.language.gate.set()
    await settle()
    assert talk.voice.spoken == ["Hello to you."]
    assert talk.protected == [(True, 0)]


# ---- answering ----


async def test_the_language_model_gets_the_talk_so_far(begin: Begin) -> None:
    talk = begin(LISTENS, "First answer.", "Second answer.")
    await talk.says("one")
    await talk.play(2 * WORD_MS)
    await talk.says("two")
    assert list(talk.language.prompts[1].messages) == [
        ChatMessage("user", "one"),
        ChatMessage("assistant", "First answer."),
        ChatMessage("user", "two"),
    ]
    assert talk.conversation.transcript.turn_count == 2


async def test_the_first_sentence_is_spoken_before_the_answer_is_complete(begin: Begin) -> None:
    talk = begin(LISTENS, [TextDelta("One two. "), TextDelta("Three four.")])
    talk.voice.free = 1
    await talk.says("go")
    assert talk.voice.spoken == ["One two.", "Three four."]
    assert talk.written_ms == 2 * WORD_MS


async def test_speaking_is_one_sentence_ahead_of_what_plays(begin: Begin) -> None:
    talk = begin(LISTENS, "One two. Three four. Five six. Seven eight.")
    await talk.says("go")
    assert talk.voice.spoken == ["One two.", "Three four."]
    await talk.play(2 * WORD_MS)
    assert talk.voice.spoken == ["One two.", "Three four.", "Five six."]


async def test_sentences_follow_each_other_without_a_gap(begin: Begin) -> None:
    talk = begin(LISTENS, "One two. Three four. Five six.")
    await talk.says("go")
    await talk.play(6 * WORD_MS)
    assert (talk.port.sent(talk.slot)[-6 * 800 :] == 1000).all()
    assert talk.items[-1] == ("assistant", "One two. Three four. Five six.")


async def test_between_two_sentences_the_agent_counts_as_speaking(begin: Begin) -> None:
    talk = begin(LISTENS, "One two. Three four.")
    talk.voice.free = 1
    await talk.says("go")
    await talk.play(3 * WORD_MS)
    assert talk.port.more(talk.slot)
    talk.voice.gate.set()
    await settle()
    assert not talk.port.more(talk.slot)


async def test_a_turn_without_words_is_no_turn(begin: Begin) -> None:
    talk = begin(LISTENS, "Hello.")
    await talk.says("  ")
    assert (talk.items, talk.language.prompts, talk.conversation.transcript.turn_count) == ([], [], 0)
    await talk.says("hello")
    assert talk.items == [("user", "hello")]


async def test_an_answer_without_words_leaves_the_agent_listening(begin: Begin) -> None:
    talk = begin(LISTENS, [], "Yes.")
    await talk.says("one")
    await talk.says("two")
    await talk.play(WORD_MS)
    assert talk.items == [("user", "one"), ("user", "two"), ("assistant", "Yes.")]


async def test_the_response_gap_is_measured_from_the_end_of_speech_to_the_first_sound(begin: Begin) -> None:
    before = metrics.RESPONSE_GAP._sum.get()
    talk = begin(LISTENS, "Hello.")
    talk.language.gate.clear()
    await talk.says("hello")
    await talk.play(300)
    talk.language.gate.set()
    await settle()
    await talk.play(40)
    assert metrics.RESPONSE_GAP._sum.get() - before == pytest.approx(0.32)


# ---- the caller goes on, or makes a noise, before the answer is heard ----


async def test_a_turn_that_goes_on_before_the_answer_is_heard_stays_one_turn(begin: Begin) -> None:
    talk = begin(LISTENS, "Too early.", "Now I know.")
    talk.language.gate.clear()
    await talk.says("I would like")
    await talk.says("a room")
    talk.language.gate.set()
    await talk.play(4 * WORD_MS)
    assert talk.items == [("user", "I would like a room"), ("assistant", "Now I know.")]
    assert talk.conversation.transcript.turn_count == 1
    assert talk.voice.spoken == ["Now I know."]


async def test_no_answer_begins_while_the_caller_speaks(begin: Begin) -> None:
    talk = begin(LISTENS, "Hello caller.")
    talk.language.gate.clear()
    await talk.says("hello")
    await talk.starts_speaking()
    talk.language.gate.set()
    await talk.play(WORD_MS)
    assert (talk.voice.spoken, talk.written_ms) == (["Hello caller."], 0)
    await talk.makes_noise()
    await talk.play(2 * WORD_MS)
    assert talk.items[-1] == ("assistant", "Hello caller.")


async def test_a_noise_that_ends_as_a_turn_without_words_lets_the_answer_go_on(begin: Begin) -> None:
    talk = begin(LISTENS, "Hello caller.")
    talk.language.gate.clear()
    await talk.says("hello")
    await talk.starts_speaking()
    talk.language.gate.set()
    await talk.stops_speaking("")
    await talk.play(2 * WORD_MS)
    assert talk.items == [("user", "hello"), ("assistant", "Hello caller.")]


# ---- interruption ----


async def test_what_was_not_heard_when_the_call_ends_is_not_in_the_transcript(begin: Begin) -> None:
    talk = begin(LISTENS, "One two three four.")
    await talk.says("count")
    await talk.play(2 * WORD_MS + 40)
    talk.conversation.settle()
    await talk.close()
    await talk.play(1000)
    assert talk.items[-1] == ("assistant", "One two")


# ---- the agent's own end of the call ----


async def test_the_agent_hangs_up_once_its_last_sample_was_sent(begin: Begin) -> None:
    talk = begin(LISTENS, [TextDelta("Good bye."), HANG_UP])
    await talk.says("bye")
    await talk.play(2 * WORD_MS - 20)
    assert not talk.run.done()
    await talk.play(20)
    assert talk.run.done()
    await talk.run
    assert talk.items[-1] == ("assistant", "Good bye.")


async def test_nothing_is_asked_of_the_language_model_after_its_wish_to_hang_up(begin: Begin) -> None:
    talk = begin(LISTENS, [TextDelta("Good bye."), HANG_UP, TextDelta(" And more.")])
    await talk.says("bye")
    assert talk.language.closed == 1
    await talk.play(2 * WORD_MS)
    await talk.run
    assert talk.voice.spoken == ["Good bye."]


async def test_the_end_of_an_answer_that_was_dropped_meanwhile_ends_nothing(begin: Begin) -> None:
    talk = begin(LISTENS, "Yes.")
    mouth = SpeechOutput(talk.voice, VoiceSettings("scripted/one", 1.0, 0.5, RATE), talk.playout)
    await talk.says("hello")
    talk.inbox.put(
        ResponseFinished(AgentResponse(scripted_parts("Bye."), mouth, ResponseTiming(lambda: 0.0), ends_call=True))
    )
    await settle()
    assert not talk.run.done()
    await talk.play(WORD_MS)
    assert talk.items[-1] == ("assistant", "Yes.")


async def test_an_agent_that_may_not_end_calls_goes_on_listening(begin: Begin) -> None:
    talk = begin(LISTENS, [TextDelta("Bye."), HANG_UP], "Still here.", may_end_call=False)
    await talk.says("bye")
    await talk.play(WORD_MS)
    assert not talk.run.done()
    assert talk.language.prompts[0].tools == ()
    await talk.says("hello")
    await talk.play(2 * WORD_MS)
    assert talk.items[-1] == ("assistant", "Still here.")


async def test_a_goodbye_that_is_interrupted_does_not_end_the_call(begin: Begin) -> None:
    talk = begin(LISTENS, [TextDelta("Good bye."), HANG_UP], "Yes.")
    await talk.says("bye")
    await talk.play(WORD_MS)
    await talk.interrupts()
    await talk.stops_speaking("wait")
    await talk.play(WORD_MS)
    assert not talk.run.done()
    assert talk.items[-1] == ("assistant", "Yes.")


# ---- digits ----


async def test_digits_are_a_turn_of_the_caller_and_cut_the_answer(begin: Begin) -> None:
    talk = begin(LISTENS, "Press one or two.", "You chose one.")
    await talk.says("menu")
    await talk.play(2 * WORD_MS)
    talk.inbox.put(DtmfEntry("1"))
    await settle()
    await talk.play(3 * WORD_MS)
    assert talk.items == [
        ("user", "menu"),
        ("assistant", "Press one"),
        ("user", "1"),
        ("assistant", "You chose one."),
    ]


async def test_digits_during_a_protected_message_are_answered_after_it(begin: Begin) -> None:
    talk = begin(greeting(first_message_uninterruptible=True), "You chose one.")
    await settle()
    await talk.play(WORD_MS)
    talk.inbox.put(DtmfEntry("1"))
    await settle()
    await talk.play(6 * WORD_MS)
    assert talk.items == [("assistant", "Good morning to you."), ("user", "1"), ("assistant", "You chose one.")]


# ---- faults ----


async def test_a_language_model_that_fails_is_excused_and_asked_again(begin: Begin) -> None:
    talk = begin(LISTENS, ModelError("out of memory"), "At nine.", ModelError("out of memory"), "At five.")
    for question in ("when do you open", "when do you open", "and close", "and close"):
        await talk.says(question)
        await talk.play(12 * WORD_MS)
    failed = stock_phrases(None).failed
    assert talk.items[1::2] == [("assistant", text) for text in (failed, "At nine.", failed, "At five.")]
    assert not talk.run.done()


async def test_a_language_model_that_fails_again_ends_the_talk_with_a_goodbye(begin: Begin) -> None:
    talk = begin(LISTENS, ModelError("out of memory"), ModelError("out of memory"))
    for _ in range(2):
        await talk.says("hello")
        await talk.play(20 * WORD_MS)
    assert talk.items[-1] == ("assistant", stock_phrases(None).cannot_answer)
    assert await talk.run == "error"


async def test_a_language_model_that_fails_in_the_middle_is_excused_behind_what_was_heard(begin: Begin) -> None:
    class Breaks(ScriptedLanguage):
        async def answer(self, prompt: ChatPrompt) -> AsyncIterator[AnswerPart]:
            yield TextDelta("We open at")
            raise ModelError("gone")

    talk = begin(LISTENS, model=Breaks())
    await talk.says("when do you open")
    await talk.play(20 * WORD_MS)
    assert talk.items[1:] == [("assistant", "We open at"), ("assistant", stock_phrases(None).failed)]


async def test_a_language_model_that_breaks_ends_the_conversation(begin: Begin) -> None:
    talk = begin(LISTENS, RuntimeError("a mistake of ours"))
    await talk.says("hello")
    with pytest.raises(ExceptionGroup) as raised:
        await talk.run
    assert raised.group_contains(RuntimeError, match="a mistake of ours")


async def test_a_voice_that_raises_ends_the_conversation(begin: Begin) -> None:
    talk = begin(LISTENS, "Hello.")
    talk.voice.error = ModelError("no voice")
    await talk.says("hello")
    with pytest.raises(ExceptionGroup) as raised:
        await talk.run
    assert raised.group_contains(ModelError, match="no voice")


async def test_a_call_that_the_audio_engine_gave_up_ends_with_its_error(begin: Begin) -> None:
    talk = begin(LISTENS)
    talk.inbox.media_events([AudioFailure(0.0, ValueError("ear"))])
    await settle()
    with pytest.raises(ExceptionGroup) as raised:
        await talk.run
    assert raised.group_contains(ValueError, match="ear")


async def test_digits_dialled_while_the_caller_speaks_are_answered_after_that(begin: Begin) -> None:
    talk = begin(LISTENS, "Too early.", "Both, then.")
    await talk.starts_speaking()
    talk.inbox.put(DtmfEntry("7"))
    await settle()
    await talk.play(300)
    assert talk.written_ms == 0
    await talk.stops_speaking("and eight")
    await talk.play(2 * WORD_MS)
    assert talk.items == [("user", "7"), ("user", "and eight"), ("assistant", "Both, then.")]
