"""The conversation, with scripted models on a real playout."""

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
from calls.conversation.event_queue import ResponseFinished, TransferRequested
from calls.conversation.idle_timer import HoldChanged
from calls.conversation.speech_output import SpeechOutput
from calls.conversation.stock_phrases import stock_phrases
from calls.conversation.tool_loop import EndCall, scripted_parts
from config.errors import ModelError
from media.engine.call_audio import AudioFailure
from models.protocols import ChatMessage, ChatPrompt, LlmOutput, TextDelta, VoiceSettings
from storage.calls.transfers import TransferOrder
from tests.fakes.scripted_call import RATE, WORD_MS, ScriptedCall, ScriptedLlm, settle

Begin = Callable[..., ScriptedCall]
LISTENS = ConversationConfig("You help.")


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    started: list[ScriptedCall] = []

    def make(config: ConversationConfig, *answers: str | Sequence[LlmOutput] | Exception, **more: Any) -> ScriptedCall:
        started.append(ScriptedCall(config, *answers, **more))
        return started[-1]

    yield make
    for call in started:
        await call.close()


def greeting(**changes: object) -> ConversationConfig:
    return ConversationConfig("You help.", **{"greeting": "Good morning to you.", "speaks_first": True, **changes})  # type: ignore[arg-type]


# ---- the first speaker ----


async def test_an_agent_that_does_not_speak_first_is_silent_until_the_callers_first_turn(begin: Begin) -> None:
    call = begin(LISTENS, "Hello caller.")
    await settle()
    assert call.written_ms == 0
    await call.says("hello")
    await call.play(2 * WORD_MS)
    assert call.items == [("user", "hello"), ("assistant", "Hello caller.")]


async def test_the_greeting_is_played_without_the_language_model(begin: Begin) -> None:
    call = begin(greeting())
    await settle()
    await call.play(4 * WORD_MS)
    assert call.items == [("assistant", "Good morning to you.")]
    assert call.llm.prompts == []


async def test_without_a_greeting_the_language_model_writes_the_first_message(begin: Begin) -> None:
    call = begin(greeting(greeting=None), "Hello from the model.")
    await settle()
    await call.play(4 * WORD_MS)
    assert call.items == [("assistant", "Hello from the model.")]
    assert list(call.llm.prompts[0].messages) == []
    assert call.llm.prompts[0].system == "You help."


async def test_the_first_message_waits_for_its_delay(begin: Begin) -> None:
    call = begin(greeting(first_message_delay_ms=3_600_000))
    await settle()
    assert call.tts.spoken == ["Good morning to you."], "it is synthesized during the delay"
    assert call.written_ms == 0


async def test_a_greeting_is_played_after_a_caller_who_speaks_during_its_delay(begin: Begin) -> None:
    call = begin(greeting(first_message_delay_ms=0))
    await call.starts_speaking()
    assert call.written_ms == 0
    await call.stops_speaking("hello there")
    await call.play(4 * WORD_MS)
    assert call.items == [("user", "hello there"), ("assistant", "Good morning to you.")]
    assert call.llm.prompts == []


async def test_an_uninterruptible_first_message_is_so_from_its_first_sample_to_its_end(begin: Begin) -> None:
    call = begin(greeting(first_message_uninterruptible=True))
    await settle()
    assert call.protected == [(True, 0)]
    await call.play(4 * WORD_MS - 20)
    assert len(call.protected) == 1
    await call.play(20)
    assert call.protected[1:] == [(False, call.port.written_position(call.slot))]


async def test_a_first_message_that_is_generated_again_stays_uninterruptible(begin: Begin) -> None:
    call = begin(greeting(greeting=None, first_message_uninterruptible=True), "Hello.", "Hello to you.")
    call.llm.gate.clear()
    await call.says("hello?")
    call.llm.gate.set()
    await settle()
    assert call.tts.spoken == ["Hello to you."]
    assert call.protected == [(True, 0)]


# ---- the announcement ----

ANNOUNCES = ConversationConfig("You help.", announcement="This call is recorded.")


async def test_the_announcement_comes_before_everything_and_cannot_be_interrupted(begin: Begin) -> None:
    call = begin(greeting(announcement="This call is recorded."))
    await settle()
    assert call.protected == [(True, 0)]
    await call.play(4 * WORD_MS)
    assert call.items == [("assistant", "This call is recorded.")]
    assert call.protected[1:] == [(False, 4 * WORD_MS * RATE // 1000)]
    await call.play(4 * WORD_MS)
    assert call.items == [("assistant", "This call is recorded."), ("assistant", "Good morning to you.")]
    assert call.llm.prompts == []


async def test_a_transfer_that_is_ordered_on_hold_waits_for_the_end_of_the_announcement(begin: Begin) -> None:
    call = begin(ANNOUNCES, "Nobody can be reached.")
    await settle()
    call.events.put(HoldChanged(True, by_client=True))
    call.events.put(TransferRequested(TransferOrder(target="sales", requested_by="api")))
    await settle()
    call.events.put(HoldChanged(False))
    await call.play(4 * WORD_MS)
    assert call.items == [("assistant", "This call is recorded.")]
    await call.play(20 * WORD_MS)
    assert call.items[-1] == ("assistant", "Nobody can be reached.")


async def test_an_agent_that_does_not_speak_first_listens_after_the_announcement(begin: Begin) -> None:
    call = begin(ANNOUNCES, "At nine.")
    await call.play(20 * WORD_MS)
    assert call.items == [("assistant", "This call is recorded.")]
    await call.says("when do you open")
    await call.play(4 * WORD_MS)
    assert call.items[1:] == [("user", "when do you open"), ("assistant", "At nine.")]


async def test_the_announcement_waits_for_no_caller_who_speaks(begin: Begin) -> None:
    call = begin(greeting(announcement="This call is recorded."))
    await call.starts_speaking()
    assert call.written_ms == 4 * WORD_MS
    await call.play(4 * WORD_MS)
    assert call.written_ms == 4 * WORD_MS, "the greeting does"
    await call.stops_speaking("hello")
    await call.play(4 * WORD_MS)
    assert call.items == [
        ("assistant", "This call is recorded."),
        ("user", "hello"),
        ("assistant", "Good morning to you."),
    ]


@pytest.mark.parametrize("ms", [0, WORD_MS], ids=["before it is audible", "meanwhile"])
async def test_words_up_to_its_end_are_answered_after_the_announcement(begin: Begin, ms: int) -> None:
    call = begin(ANNOUNCES, "At nine.")
    call.tts.ungated_sentences = 0
    await settle()
    if ms:
        call.tts.gate.set()
        await call.play(ms)
    await call.says("when do you open")
    call.tts.gate.set()
    await settle()
    await call.play(8 * WORD_MS)
    assert sorted(call.items[:2]) == [("assistant", "This call is recorded."), ("user", "when do you open")]
    assert call.items[2:] == [("assistant", "At nine.")]
    assert len(call.llm.prompts) == 1


async def test_digits_during_the_announcement_are_answered_after_the_greeting(begin: Begin) -> None:
    call = begin(greeting(announcement="This call is recorded."), "You chose one.")
    await settle()
    await call.play(WORD_MS)
    call.events.put(DtmfEntry("1"))
    await settle()
    await call.play(14 * WORD_MS)
    assert [text for _, text in call.items] == [
        "This call is recorded.",
        "1",
        "Good morning to you.",
        "You chose one.",
    ]


async def test_words_over_the_greeting_are_the_answer_to_what_waited(begin: Begin) -> None:
    call = begin(greeting(announcement="This call is recorded."), "You chose one.")
    await settle()
    await call.play(WORD_MS)
    call.events.put(DtmfEntry("1"))
    await settle()
    await call.play(5 * WORD_MS)
    await call.interrupts()
    await call.stops_speaking("never mind")
    await call.play(20 * WORD_MS)
    assert call.items[-2:] == [("user", "never mind"), ("assistant", "You chose one.")]
    assert len(call.llm.prompts) == 1


async def test_a_first_message_of_the_model_follows_the_announcement(begin: Begin) -> None:
    call = begin(greeting(greeting=None, announcement="This call is recorded."), "Hello.", "At nine.")
    await settle()
    await call.play(6 * WORD_MS)
    assert call.items == [("assistant", "This call is recorded."), ("assistant", "Hello.")]
    assert list(call.llm.prompts[0].messages) == [], "the announcement is no first message"
    await call.says("when do you open")
    assert [message.content for message in call.llm.prompts[1].messages] == [
        "This call is recorded.",
        "Hello.",
        "when do you open",
    ]


async def test_the_delay_of_the_first_message_begins_after_the_announcement(begin: Begin) -> None:
    call = begin(greeting(announcement="This call is recorded.", first_message_delay_ms=3_600_000))
    await settle()
    await call.play(8 * WORD_MS)
    assert call.items == [("assistant", "This call is recorded.")]
    assert call.written_ms == 4 * WORD_MS


# ---- answering ----


async def test_the_prompt_has_the_conversation_so_far(begin: Begin) -> None:
    call = begin(LISTENS, "First answer.", "Second answer.")
    await call.says("one")
    await call.play(2 * WORD_MS)
    await call.says("two")
    assert list(call.llm.prompts[1].messages) == [
        ChatMessage("user", "one"),
        ChatMessage("assistant", "First answer."),
        ChatMessage("user", "two"),
    ]
    assert call.conversation.transcript.turn_count == 2


async def test_the_first_sentence_is_spoken_before_the_response_is_complete(begin: Begin) -> None:
    call = begin(LISTENS, [TextDelta("One two. "), TextDelta("Three four.")])
    call.tts.ungated_sentences = 1
    await call.says("go")
    assert call.tts.spoken == ["One two.", "Three four."]
    assert call.written_ms == 2 * WORD_MS


async def test_synthesis_is_one_sentence_ahead_of_playout(begin: Begin) -> None:
    call = begin(LISTENS, "One two. Three four. Five six. Seven eight.")
    await call.says("go")
    assert call.tts.spoken == ["One two.", "Three four."]
    await call.play(2 * WORD_MS)
    assert call.tts.spoken == ["One two.", "Three four.", "Five six."]


async def test_sentences_follow_each_other_without_a_gap(begin: Begin) -> None:
    call = begin(LISTENS, "One two. Three four. Five six.")
    await call.says("go")
    await call.play(6 * WORD_MS)
    assert (call.port.sent(call.slot)[-6 * 800 :] == 1000).all()
    assert call.items[-1] == ("assistant", "One two. Three four. Five six.")


async def test_between_two_sentences_the_agent_counts_as_speaking(begin: Begin) -> None:
    call = begin(LISTENS, "One two. Three four.")
    call.tts.ungated_sentences = 1
    await call.says("go")
    await call.play(3 * WORD_MS)
    assert call.port.more(call.slot)
    call.tts.gate.set()
    await settle()
    assert not call.port.more(call.slot)


async def test_a_turn_without_words_is_no_turn(begin: Begin) -> None:
    call = begin(LISTENS, "Hello.")
    await call.says("  ")
    assert (call.items, call.llm.prompts, call.conversation.transcript.turn_count) == ([], [], 0)
    await call.says("hello")
    assert call.items == [("user", "hello")]


async def test_a_response_without_words_leaves_the_agent_listening(begin: Begin) -> None:
    call = begin(LISTENS, [], "Yes.")
    await call.says("one")
    await call.says("two")
    await call.play(WORD_MS)
    assert call.items == [("user", "one"), ("user", "two"), ("assistant", "Yes.")]


async def test_the_response_gap_is_from_the_end_of_speech_to_the_first_audio(begin: Begin) -> None:
    before = metrics.RESPONSE_GAP._sum.get()
    call = begin(LISTENS, "Hello.")
    call.llm.gate.clear()
    await call.says("hello")
    await call.play(300)
    call.llm.gate.set()
    await settle()
    await call.play(40)
    assert metrics.RESPONSE_GAP._sum.get() - before == pytest.approx(0.32)


# ---- the caller goes on, or makes a noise, before the answer is heard ----


async def test_a_turn_that_goes_on_before_the_response_is_played_stays_one_turn(begin: Begin) -> None:
    call = begin(LISTENS, "Too early.", "Now I know.")
    call.llm.gate.clear()
    await call.says("I would like")
    await call.says("a room")
    call.llm.gate.set()
    await call.play(4 * WORD_MS)
    assert call.items == [("user", "I would like a room"), ("assistant", "Now I know.")]
    assert call.conversation.transcript.turn_count == 1
    assert call.tts.spoken == ["Now I know."]


async def test_no_response_begins_while_the_caller_speaks(begin: Begin) -> None:
    call = begin(LISTENS, "Hello caller.")
    call.llm.gate.clear()
    await call.says("hello")
    await call.starts_speaking()
    call.llm.gate.set()
    await call.play(WORD_MS)
    assert (call.tts.spoken, call.written_ms) == (["Hello caller."], 0)
    await call.makes_noise()
    await call.play(2 * WORD_MS)
    assert call.items[-1] == ("assistant", "Hello caller.")


async def test_the_response_goes_on_after_a_turn_without_words(begin: Begin) -> None:
    call = begin(LISTENS, "Hello caller.")
    call.llm.gate.clear()
    await call.says("hello")
    await call.starts_speaking()
    call.llm.gate.set()
    await call.stops_speaking("")
    await call.play(2 * WORD_MS)
    assert call.items == [("user", "hello"), ("assistant", "Hello caller.")]


# ---- interruption ----


async def test_words_that_were_not_played_at_the_calls_end_are_not_in_the_transcript(begin: Begin) -> None:
    call = begin(LISTENS, "One two three four.")
    await call.says("count")
    await call.play(2 * WORD_MS + 40)
    call.conversation.close()
    await call.close()
    await call.play(1000)
    assert call.items[-1] == ("assistant", "One two")


# ---- the agent's own end of the call ----


async def test_the_agent_hangs_up_once_its_last_sample_was_sent(begin: Begin) -> None:
    call = begin(LISTENS, [TextDelta("Good bye."), HANG_UP])
    await call.says("bye")
    await call.play(2 * WORD_MS - 20)
    assert not call.run.done()
    await call.play(20)
    assert call.run.done()
    await call.run
    assert call.items[-1] == ("assistant", "Good bye.")


async def test_the_language_model_is_not_asked_again_after_end_call(begin: Begin) -> None:
    call = begin(LISTENS, [TextDelta("Good bye."), HANG_UP, TextDelta(" And more.")])
    await call.says("bye")
    assert call.llm.closed == 1
    await call.play(2 * WORD_MS)
    await call.run
    assert call.tts.spoken == ["Good bye."]


async def test_the_end_of_a_dropped_response_is_ignored(begin: Begin) -> None:
    call = begin(LISTENS, "Yes.")
    output = SpeechOutput(call.tts, VoiceSettings("scripted/one", 1.0, 0.5, RATE), call.playout)
    await call.says("hello")
    call.events.put(
        ResponseFinished(
            AgentResponse(scripted_parts("Bye."), output, ResponseTiming(lambda: 0.0), next_action=EndCall())
        )
    )
    await settle()
    assert not call.run.done()
    await call.play(WORD_MS)
    assert call.items[-1] == ("assistant", "Yes.")


async def test_an_agent_that_may_not_end_calls_goes_on_listening(begin: Begin) -> None:
    call = begin(LISTENS, [TextDelta("Bye."), HANG_UP], "Still here.", may_end_call=False)
    await call.says("bye")
    await call.play(WORD_MS)
    assert not call.run.done()
    assert call.llm.prompts[0].tools == ()
    await call.says("hello")
    await call.play(2 * WORD_MS)
    assert call.items[-1] == ("assistant", "Still here.")


async def test_a_goodbye_that_is_interrupted_does_not_end_the_call(begin: Begin) -> None:
    call = begin(LISTENS, [TextDelta("Good bye."), HANG_UP], "Yes.")
    await call.says("bye")
    await call.play(WORD_MS)
    await call.interrupts()
    await call.stops_speaking("wait")
    await call.play(WORD_MS)
    assert not call.run.done()
    assert call.items[-1] == ("assistant", "Yes.")


# ---- digits ----


async def test_digits_are_a_turn_of_the_caller_and_cut_the_response(begin: Begin) -> None:
    call = begin(LISTENS, "Press one or two.", "You chose one.")
    await call.says("menu")
    await call.play(2 * WORD_MS)
    call.events.put(DtmfEntry("1"))
    await settle()
    await call.play(3 * WORD_MS)
    assert call.items == [
        ("user", "menu"),
        ("assistant", "Press one"),
        ("user", "1"),
        ("assistant", "You chose one."),
    ]


async def test_digits_during_an_uninterruptible_message_are_answered_after_it(begin: Begin) -> None:
    call = begin(greeting(first_message_uninterruptible=True), "You chose one.")
    await settle()
    await call.play(WORD_MS)
    call.events.put(DtmfEntry("1"))
    await settle()
    await call.play(6 * WORD_MS)
    assert call.items == [("assistant", "Good morning to you."), ("user", "1"), ("assistant", "You chose one.")]


# ---- faults ----


async def test_after_a_failure_of_the_language_model_the_agent_apologizes_and_the_model_is_asked_again(
    begin: Begin,
) -> None:
    call = begin(LISTENS, ModelError("out of memory"), "At nine.", ModelError("out of memory"), "At five.")
    for question in ("when do you open", "when do you open", "and close", "and close"):
        await call.says(question)
        await call.play(12 * WORD_MS)
    apology = stock_phrases(None).apology
    assert call.items[1::2] == [("assistant", text) for text in (apology, "At nine.", apology, "At five.")]
    assert not call.run.done()


async def test_after_a_second_failure_of_the_language_model_the_agent_says_goodbye(begin: Begin) -> None:
    call = begin(LISTENS, ModelError("out of memory"), ModelError("out of memory"))
    for _ in range(2):
        await call.says("hello")
        await call.play(20 * WORD_MS)
    assert call.items[-1] == ("assistant", stock_phrases(None).final_apology)
    assert await call.run == "error"


async def test_the_apology_for_a_failure_within_a_response_follows_the_played_words(begin: Begin) -> None:
    class Breaks(ScriptedLlm):
        async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
            yield TextDelta("We open at")
            raise ModelError("gone")

    call = begin(LISTENS, model=Breaks())
    await call.says("when do you open")
    await call.play(20 * WORD_MS)
    assert call.items[1:] == [("assistant", "We open at"), ("assistant", stock_phrases(None).apology)]


async def test_an_unexpected_exception_of_the_language_model_ends_the_conversation(begin: Begin) -> None:
    call = begin(LISTENS, RuntimeError("a mistake of ours"))
    await call.says("hello")
    with pytest.raises(ExceptionGroup) as raised:
        await call.run
    assert raised.group_contains(RuntimeError, match="a mistake of ours")


async def test_a_failure_of_speech_synthesis_ends_the_conversation(begin: Begin) -> None:
    call = begin(LISTENS, "Hello.")
    call.tts.error = ModelError("no voice")
    await call.says("hello")
    with pytest.raises(ExceptionGroup) as raised:
        await call.run
    assert raised.group_contains(ModelError, match="no voice")


async def test_an_audio_failure_ends_the_conversation_with_its_error(begin: Begin) -> None:
    call = begin(LISTENS)
    call.events.on_media_events([AudioFailure(0.0, ValueError("audio"))])
    await settle()
    with pytest.raises(ExceptionGroup) as raised:
        await call.run
    assert raised.group_contains(ValueError, match="audio")


async def test_digits_entered_while_the_caller_speaks_are_answered_after_the_turn(begin: Begin) -> None:
    call = begin(LISTENS, "Too early.", "Both, then.")
    await call.starts_speaking()
    call.events.put(DtmfEntry("7"))
    await settle()
    await call.play(300)
    assert call.written_ms == 0
    await call.stops_speaking("and eight")
    await call.play(2 * WORD_MS)
    assert call.items == [("user", "7"), ("user", "and eight"), ("assistant", "Both, then.")]
