"""Speech recognition and end-of-turn detection act on turn taking alike in calls and in replays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

import numpy as np
import pytest

from calls.conversation.speech_input import add_call, final_transcript, report_partial_transcript
from media.audio_port import TICK_MS, Samples
from media.engine.call_audio import CallAudio
from media.turn_taking.events import BargeIn, PlayoutPaused, TurnDropped, TurnEnded
from media.turn_taking.settings import TurnSettings
from tests.media.engine_harness import (
    AnsweringEndOfTurnSink,
    EngineHarness,
    Listener,
    RecordingSpeechSink,
)
from tests.media.speech import silence, speech, tone

OVER_THE_AGENT = np.concatenate([silence(1000), speech("hold on please"), silence(9000)])
TURN = np.concatenate([silence(500), speech("yes"), silence(3000)])


class CountingEndOfTurnSink(AnsweringEndOfTurnSink):
    """Answers 0.9, and counts the queries."""

    def __init__(self) -> None:
        super().__init__(repeat(0.9))
        self.queries = 0

    def ask(self, answer: Callable[[float | None], None]) -> None:
        self.queries += 1
        super().ask(answer)


class Call:
    """A call with this audio of the caller; the end-of-turn model answers 0.9."""

    def __init__(self, caller: Samples, latency_ms: float = 0.0) -> None:
        self.harness = EngineHarness()
        self.listener, self.stt = Listener(), RecordingSpeechSink()
        self.end_of_turn = CountingEndOfTurnSink()
        self.audio: CallAudio = add_call(
            self.harness.engine,
            self.harness.port.open(8000, caller),
            TurnSettings(turn_endpoint_delay=300),
            self.listener,
            stt=self.stt,
            end_of_turn=self.end_of_turn,
            end_of_turn_latency_ms=latency_ms,
        )
        self.harness.engine.tick()


def paused_agent() -> Call:
    call = Call(OVER_THE_AGENT)
    call.audio.playout.begin("a long tone")
    call.audio.playout.write(tone(8000))
    call.harness.run(1300)
    assert call.listener.of(PlayoutPaused) and not call.listener.of(BargeIn)
    return call


def test_words_interrupt_the_agent() -> None:
    call = paused_agent()
    report_partial_transcript(call.audio, "hold on please", "en")
    call.harness.run(400)
    assert len(call.listener.of(BargeIn)) == 1


@pytest.mark.parametrize(("text", "language"), [("mhm okay", "en"), ("genau", "de")])
def test_backchannels_of_the_language_do_not_interrupt_the_agent(text: str, language: str) -> None:
    call = paused_agent()
    report_partial_transcript(call.audio, text, language)
    call.harness.run(4000)
    assert call.listener.of(BargeIn) == []
    assert [event.reason for event in call.listener.of(TurnDropped)] == ["backchannel"]


def test_both_models_get_the_audio_of_the_turn_and_the_end_of_turn_model_ends_it() -> None:
    call = Call(TURN)
    call.harness.run(2500)
    assert len(call.stt.sound) > 1000
    assert np.array_equal(np.concatenate(call.end_of_turn.fed), call.stt.sound)
    assert [event.reason for event in call.listener.of(TurnEnded)] == ["model"]


def first_query_ms(latency_ms: float) -> float:
    call = Call(TURN, latency_ms)
    while not call.end_of_turn.queries:
        call.harness.run(TICK_MS)
    return call.harness.port.now_ms - call.harness.start_ms


def test_the_end_of_turn_model_is_queried_ahead_by_its_latency() -> None:
    assert first_query_ms(0) - first_query_ms(100) == pytest.approx(100, abs=TICK_MS)


@pytest.mark.parametrize(("text", "words"), [(" yes \n", "yes"), (" ", "")])
async def test_a_turn_of_white_space_has_no_words(text: str, words: str) -> None:
    class Recognizer:
        async def end_turn(self) -> str:
            return text

    assert await final_transcript(Recognizer()) == words
