"""The timeline of a call's turns: in a conversation on a virtual clock, and as it is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from calls.call_record.timeline import MAX_FALLBACKS, Timeline
from calls.conversation.config import ConversationConfig
from calls.conversation.dtmf_collector import DtmfEntry
from calls.session import live_transcript
from media.audio_port import TICK_MS
from media.turn_taking.events import TurnEnded
from models.protocols import LlmOutput, TextDelta
from models.runtime.request_context import ModelFallback
from storage.calls.calls import Call
from tests.calls.call_service_harness import GREETS, CallServiceHarness, call_service, every_call, until
from tests.fakes.fake_leg import Phone
from tests.fakes.scripted_call import WORD_MS, ScriptedCall, settle

Begin = Callable[..., ScriptedCall]
LISTENS = ConversationConfig("You help.")
GREETED = ConversationConfig("You help.", greeting="Good morning to you.", speaks_first=True)
KEYS = (
    *("turn", "ended_by", "eot_probability", "speech_start_ms", "speech_end_ms", "turn_end_ms", "text_ready_ms"),
    *("first_token_ms", "speech_ready_ms", "agent_start_ms", "interrupted_ms", "agent_end_ms", "response_gap_ms"),
    *("played_ms", "interrupted", "speculated", "tools", "sources"),
)


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    started: list[ScriptedCall] = []

    def make(config: ConversationConfig, *answers: str | Sequence[LlmOutput] | Exception) -> ScriptedCall:
        started.append(ScriptedCall(config, *answers))
        return started[-1]

    yield make
    for call in started:
        await call.close()


def turns(call: ScriptedCall) -> list[dict[str, Any]]:
    return call.conversation.timeline.items()


async def dials(call: ScriptedCall, digits: str) -> None:
    call.events.put(DtmfEntry(digits))
    await settle()


async def test_a_turn_has_the_times_of_all_its_stages(begin: Begin) -> None:
    call = begin(LISTENS, "Hello caller. Bye.")
    call.llm.gate.clear()
    call.tts.ungated_sentences = 0
    await call.play(1000)
    await call.says("hello")
    await call.play(60)
    call.llm.gate.set()
    await settle()
    await call.play(40)
    call.tts.gate.set()
    await settle()
    assert turns(call)[0]["agent_start_ms"] is None
    await call.play(1000)
    assert turns(call) == [
        dict.fromkeys(KEYS)
        | {
            "turn": 1,
            "ended_by": "model",
            "speech_start_ms": 500,
            "speech_end_ms": 1000,
            "turn_end_ms": 1000,
            "text_ready_ms": 1000,
            "first_token_ms": 1060,
            "speech_ready_ms": 1100,
            "agent_start_ms": 1100 + TICK_MS,
            "agent_end_ms": 1100 + 3 * WORD_MS,
            "response_gap_ms": 100 + TICK_MS,
            "played_ms": 3 * WORD_MS,
            "interrupted": False,
            "speculated": False,
            "tools": [],
            "sources": [],
        }
    ]


async def test_the_first_text_and_the_first_sentence_count_not_the_later_ones(begin: Begin) -> None:
    call = begin(LISTENS, [TextDelta("One two. "), TextDelta("Three four. "), TextDelta("Five six.")])
    await call.says("go")
    await call.play(2000)
    (turn,) = turns(call)
    assert (turn["first_token_ms"], turn["speech_ready_ms"], turn["agent_end_ms"]) == (0, 0, 6 * WORD_MS)


async def test_a_greeting_is_turn_0_and_needs_no_language_model(begin: Begin) -> None:
    call = begin(GREETED)
    await settle()
    await call.play(4 * WORD_MS + 100)
    assert turns(call) == [
        dict.fromkeys(KEYS)
        | {
            "turn": 0,
            "speech_ready_ms": 0,
            "agent_start_ms": TICK_MS,
            "agent_end_ms": 4 * WORD_MS,
            "played_ms": 4 * WORD_MS,
            "interrupted": False,
            "speculated": False,
            "tools": [],
            "sources": [],
        }
    ]


async def test_an_opening_by_the_language_model_has_a_first_token(begin: Begin) -> None:
    call = begin(ConversationConfig("You help.", speaks_first=True), "Hello.")
    call.llm.gate.clear()
    await settle()
    await call.play(80)
    call.llm.gate.set()
    await call.play(2 * WORD_MS)
    (turn,) = turns(call)
    assert (turn["turn"], turn["ended_by"], turn["response_gap_ms"]) == (0, None, None)
    assert turn["first_token_ms"] == turn["speech_ready_ms"] == 80 + TICK_MS


async def test_an_agent_that_does_not_speak_first_has_no_turn_0(begin: Begin) -> None:
    call = begin(LISTENS, "Yes.")
    await settle()
    assert turns(call) == []
    await call.says("")
    assert turns(call) == []
    await call.says("hello")
    assert [turn["turn"] for turn in turns(call)] == [1]


async def test_an_interrupted_response_ends_when_it_is_cut(begin: Begin) -> None:
    call = begin(LISTENS, "One two three four.", "Yes?")
    await call.says("count")
    await call.play(2 * WORD_MS)
    await call.interrupts()
    await call.play(300)
    await call.stops_speaking("stop")
    await call.play(2 * WORD_MS)
    first, second = turns(call)
    assert (first["interrupted"], first["agent_start_ms"], first["agent_end_ms"]) == (True, TICK_MS, 2 * WORD_MS)
    assert (second["turn"], second["interrupted"], second["response_gap_ms"]) == (2, False, TICK_MS)


async def test_an_extended_turn_keeps_its_beginning_and_moves_its_end(begin: Begin) -> None:
    call = begin(LISTENS, "Too early.", "Now I know.")
    call.tts.ungated_sentences = 0
    await call.play(1000)
    await call.says("I would like")
    assert turns(call)[0]["first_token_ms"] == 1000
    call.llm.gate.clear()
    await call.play(2000)
    await call.says("a room")
    (turn,) = turns(call)
    assert (turn["speech_start_ms"], turn["speech_end_ms"], turn["turn_end_ms"]) == (500, 3000, 3000)
    assert (turn["first_token_ms"], turn["speech_ready_ms"]) == (None, None), "that response is dropped"
    call.llm.gate.set()
    call.tts.gate.set()
    await call.play(4 * WORD_MS)
    (turn,) = turns(call)
    assert (turn["text_ready_ms"], turn["first_token_ms"], turn["interrupted"]) == (3000, 3000 + TICK_MS, False)
    assert turn["response_gap_ms"] == turn["agent_start_ms"] - 3000


async def test_a_greeting_that_waited_for_the_caller_is_the_response_to_the_callers_turn(begin: Begin) -> None:
    call = begin(GREETED)
    await call.starts_speaking()
    await call.play(400)
    await call.stops_speaking("hello there")
    await call.play(4 * WORD_MS + 100)
    opening, first = turns(call)
    assert (opening["speech_ready_ms"], opening["agent_start_ms"], opening["agent_end_ms"]) == (0, None, None)
    assert (first["first_token_ms"], first["speech_ready_ms"], first["agent_start_ms"]) == (None, None, 400 + TICK_MS)
    assert (first["agent_end_ms"], first["response_gap_ms"]) == (400 + 4 * WORD_MS, TICK_MS)


async def test_digits_end_a_turn_without_speech_and_without_a_gap(begin: Begin) -> None:
    call = begin(LISTENS, "You chose one.")
    await call.play(500)
    await dials(call, "1")
    await call.play(4 * WORD_MS)
    (turn,) = turns(call)
    assert (turn["ended_by"], turn["turn_end_ms"], turn["text_ready_ms"]) == ("digits", 500, 500)
    assert (turn["speech_start_ms"], turn["speech_end_ms"], turn["response_gap_ms"]) == (None, None, None)
    assert turn["agent_start_ms"] == 500 + TICK_MS


async def test_digits_after_words_are_a_turn_of_their_own_without_a_gap(begin: Begin) -> None:
    call = begin(LISTENS, "Too early.", "You chose one.")
    call.llm.gate.clear()
    await call.play(1000)
    await call.says("I take")
    await call.play(500)
    await dials(call, "1")
    call.llm.gate.set()
    await call.play(4 * WORD_MS)
    words, digits = turns(call)
    assert (words["ended_by"], words["speech_end_ms"], words["agent_start_ms"]) == ("model", 1000, None)
    assert (digits["ended_by"], digits["speech_end_ms"], digits["turn_end_ms"]) == ("digits", None, 1500)
    assert (digits["agent_start_ms"], digits["response_gap_ms"]) == (1500 + 2 * TICK_MS, None)
    assert call.items == [("user", "I take"), ("user", "1"), ("assistant", "You chose one.")]


async def test_digits_cut_the_response_that_plays(begin: Begin) -> None:
    call = begin(LISTENS, "Press one or two.", "You chose one.")
    await call.says("menu")
    await call.play(2 * WORD_MS)
    await dials(call, "1")
    await call.play(4 * WORD_MS)
    first, second = turns(call)
    assert (first["interrupted"], first["agent_end_ms"]) == (True, 2 * WORD_MS)
    assert (second["turn"], second["turn_end_ms"], second["interrupted"]) == (2, 2 * WORD_MS, False)
    assert (second["agent_start_ms"], second["agent_end_ms"]) == (2 * WORD_MS, 5 * WORD_MS)


async def test_digits_during_an_uninterruptible_message_are_a_turn_that_is_answered_afterwards(begin: Begin) -> None:
    call = begin(
        ConversationConfig(
            "You help.", greeting="Good morning to you.", speaks_first=True, first_message_uninterruptible=True
        ),
        "One.",
    )
    await settle()
    await call.play(WORD_MS)
    await dials(call, "1")
    await call.play(4 * WORD_MS)
    await call.play(2 * WORD_MS)
    opening, first = turns(call)
    assert (opening["agent_end_ms"], opening["interrupted"]) == (4 * WORD_MS, False)
    assert (first["turn_end_ms"], first["first_token_ms"]) == (WORD_MS, 4 * WORD_MS)
    assert (first["agent_start_ms"], first["agent_end_ms"]) == (4 * WORD_MS, 5 * WORD_MS), "they follow without a gap"


async def test_the_end_of_the_call_ends_the_response_without_an_interruption(begin: Begin) -> None:
    call = begin(LISTENS, "One two three four.")
    await call.says("count")
    await call.play(2 * WORD_MS)
    call.conversation.close()
    await call.close()
    (turn,) = turns(call)
    assert (turn["agent_end_ms"], turn["interrupted"]) == (2 * WORD_MS, False)


async def test_the_timeline_has_no_words_of_the_conversation(begin: Begin) -> None:
    call = begin(GREETED, "Hello caller.")
    await call.play(WORD_MS)
    await call.interrupts()
    await call.stops_speaking("my secret is 4711")
    await call.play(4 * WORD_MS)
    for turn in turns(call):
        assert tuple(turn) == KEYS
        assert all(isinstance(turn[name], int | None) for name in KEYS if name not in ("ended_by", "tools", "sources"))
        assert turn["ended_by"] in ("model", None)
        assert turn["tools"] == turn["sources"] == []


async def _wait_for_call(harness: CallServiceHarness, holds: Callable[[Call], bool]) -> Call:
    """Wait until the only stored call matches; returns it."""
    (found,) = await harness.database.until(every_call, lambda found: bool(found) and all(map(holds, found)))
    return found


async def test_the_timeline_is_stored_during_the_call_and_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_transcript, "PROGRESS_DELAY_S", 0.01)
    monkeypatch.setattr(live_transcript, "SHARED_PROGRESS_DELAY_S", 0.01)
    long = "Welcome caller. " * 20  # still playing when its beginning is stored, also on a busy machine
    async with call_service(tmp_path) as harness:
        await harness.create_number(**{**GREETS, "agent_greeting": long})
        phone = harness.invite()
        live = await _wait_for_call(harness, lambda call: bool(call.timeline))
        assert live.ended_at is None
        opening = live.timeline[0]
        assert (opening["turn"], opening["agent_end_ms"]) == (0, None)
        assert 0 <= opening["speech_ready_ms"] <= opening["agent_start_ms"]
        heard = await _wait_for_call(harness, lambda call: call.timeline[0]["agent_end_ms"] is not None)
        assert heard.ended_at is None
        phone.hangs_up()
        call = await harness.ended_call(phone)
    assert call.timeline == heard.timeline
    ended = {name: heard.timeline[0][name] for name in ("agent_end_ms", "played_ms")}
    assert heard.timeline[0] == opening | ended
    assert ended["played_ms"] > 0
    assert heard.timeline[0]["agent_end_ms"] > opening["agent_start_ms"]


async def test_a_call_that_was_never_answered_has_no_turns(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(**GREETS)
        phone = Phone(harness.pump)
        phone.dialog.mute = True
        harness.service.on_incoming_call(phone.leg)
        await until(lambda: 200 in phone.sent)
        phone.hangs_up(487)
        assert (await harness.ended_call(phone)).timeline == []


def test_utterances_of_connected_parties_are_in_the_order_of_their_beginnings() -> None:
    timeline = Timeline(1000.0, lambda: 9000.0)
    timeline.add_opening()
    timeline.add_utterance("caller", 3000.0, TurnEnded(5000.0, 3000.0, 4800.0, "model", 0.91))
    timeline.add_utterance("target", 2000.0, TurnEnded(2500.0, 2000.0, 2400.0, "delay"))
    timeline.add_utterance("caller", 8000.0, None, transcription_ended="caller")
    timeline.add_transcription_error()
    opening, first, second, cut, error = timeline.items()
    assert "speaker" not in opening
    assert "transcription_ended" not in opening
    assert (first["speaker"], first["speech_start_ms"], first["ended_by"]) == ("target", 1000, "delay")
    assert (second["speaker"], second["speech_end_ms"], second["turn_end_ms"]) == ("caller", 3800, 4000)
    assert (second["eot_probability"], second["text_ready_ms"], second["turn"]) == (0.91, 8000, 0)
    assert (cut["speech_end_ms"], cut["ended_by"], cut["transcription_ended"]) == (None, None, "caller")
    assert (error["transcription_ended"], error["turn_end_ms"]) == ("error", 8000)
    assert "speaker" not in error


def test_models_that_failed_are_stored_with_their_times() -> None:
    timeline = Timeline(1000.0, lambda: 1500.4)
    for _ in range(MAX_FALLBACKS + 1):
        timeline.add_fallback(ModelFallback("llm", "gpu-a", "gpu-b", "busy"))
    items = timeline.items()
    assert len(items) == MAX_FALLBACKS
    assert items[0] == {
        "model_fallback": {"kind": "llm", "model": "gpu-a", "to": "gpu-b", "reason": "busy"},
        "at_ms": 500,
    }
