"""Endpointing: the end of a turn by the end-of-turn model, the delay or the fallback; and speculation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from media.turn_taking.events import (
    AgentStarted,
    AgentStopped,
    AskEndOfTurn,
    BargeIn,
    PlayoutPaused,
    SpeculativeTurnEnd,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnEnded,
)
from media.turn_taking.turn_detector import TurnDetector
from tests.media.turn_taking.turn_simulation import NEVER, NO_MODEL, SILENCE, SPEECH, STAND, SimulatedCall

MODEL = replace(NO_MODEL, ultravad_eot_threshold=0.5)


def test_the_model_is_queried_at_the_delay_and_again_every_200_ms() -> None:
    call = SimulatedCall(MODEL, eot=0.49).speak(300).pass_ms(750)
    assert [event.at_ms for event in call.of(AskEndOfTurn)] == [400, 600, 800, 1000]
    assert call.of(TurnEnded) == []


def test_the_model_ends_the_turn_at_its_threshold() -> None:
    call = SimulatedCall(MODEL, eot=0.49).speak(300).pass_ms(250)
    call.eot = 0.5
    assert call.pass_ms(50).of(TurnEnded) == [TurnEnded(600, 0, 300, "model", probability=0.5)]


def test_an_answer_of_the_model_counts_only_while_the_silence_lasts() -> None:
    call = SimulatedCall(MODEL).speak(300).pass_ms(120).speak(50)
    assert call.turn_detector.on_end_of_turn(call.now, 0.9, call.now) == ()
    assert call.of(SpeechResumed) == [SpeechResumed(430)]


def test_the_fallback_ends_a_turn_that_the_model_never_ends() -> None:
    settings = replace(MODEL, fallback_silence_ms=1200)
    assert SimulatedCall(settings, eot=0.0).speak(300).pass_ms(1190).of(TurnEnded) == []
    assert SimulatedCall(settings, eot=0.0).speak(300).pass_ms(1200).of(TurnEnded) == [
        TurnEnded(1500, 0, 300, "fallback")
    ]


def test_an_answer_about_an_earlier_silence_is_ignored() -> None:
    call = SimulatedCall(MODEL, eot=0.9, answers_ms=90).speak(300).pass_ms(150).speak(20)
    assert call.at(AskEndOfTurn) == [400]
    assert call.pass_ms(90).of(TurnEnded) == []
    assert call.pass_ms(110).of(TurnEnded) == [TurnEnded(660, 0, 470, "model", probability=0.9)]


def test_a_model_with_latency_is_queried_earlier() -> None:
    settings = replace(MODEL, turn_endpoint_delay=300)
    call = SimulatedCall(settings, eot=0.9, answers_ms=60, ask_ahead_ms=60).speak(300).pass_ms(290)
    assert call.at(AskEndOfTurn) == [540]
    assert call.of(TurnEnded) == []
    assert call.pass_ms(10).of(TurnEnded) == [TurnEnded(600, 0, 300, "model", probability=0.9)]


def test_an_answer_that_comes_late_ends_the_turn_when_it_comes() -> None:
    call = SimulatedCall(MODEL, eot=0.9, answers_ms=250).speak(300).pass_ms(340)
    assert call.of(TurnEnded) == []
    assert call.pass_ms(10).of(TurnEnded) == [TurnEnded(650, 0, 300, "model", probability=0.9)]


def test_the_model_is_queried_again_200_ms_after_its_answer_never_twice_at_once() -> None:
    call = SimulatedCall(MODEL, eot=0.0, answers_ms=150).speak(300).pass_ms(1000)
    assert call.at(AskEndOfTurn) == [400, 750, 1100]


def test_a_query_without_an_answer_is_given_up_after_a_second() -> None:
    call = SimulatedCall(MODEL, eot=0.9, answers_ms=NEVER).speak(300).pass_ms(3000)
    assert call.at(AskEndOfTurn) == [400, 1600, 2800]
    assert call.of(TurnEnded) == [TurnEnded(3300, 0, 300, "fallback")]


@pytest.mark.parametrize("answers_ms", [1100, 1300])
def test_the_answer_to_a_query_that_was_given_up_still_counts_in_its_silence(answers_ms: int) -> None:
    call = SimulatedCall(MODEL, eot=0.9, answers_ms=answers_ms).speak(300).pass_ms(1500)
    assert call.of(TurnEnded) == [TurnEnded(400 + answers_ms, 0, 300, "model", probability=0.9)]


def test_a_new_silence_waits_for_the_answer_to_the_pending_query() -> None:
    call = SimulatedCall(MODEL, eot=0.0, answers_ms=300).speak(300).pass_ms(150).speak(50).pass_ms(300)
    assert call.at(AskEndOfTurn) == [400, 700]


def test_a_new_silence_does_not_wait_for_a_query_that_was_given_up() -> None:
    call = SimulatedCall(MODEL, eot=0.0, answers_ms=NEVER).speak(300).pass_ms(150).speak(800).pass_ms(300)
    assert call.at(AskEndOfTurn) == [400, 1400]


def test_an_answer_waits_while_new_sound_is_unconfirmed() -> None:
    turn_detector = TurnDetector(replace(MODEL, fallback_silence_ms=10_000))
    turn_detector.on_vad_window(500, SPEECH, 100, False)
    turn_detector.on_tick(560, False, arrived_ms=560, quiet_ms=60)
    (_, asked) = turn_detector.on_tick(600, False, arrived_ms=600, quiet_ms=100)
    assert asked == AskEndOfTurn(600)
    assert turn_detector.on_tick(620, False, arrived_ms=620, quiet_ms=5) == ()
    assert turn_detector.on_end_of_turn(620, 1.0, asked_ms=600) == ()
    turn_detector.on_vad_window(672, SILENCE, 32, False)
    assert TurnEnded(680, 400, 500, "model", probability=1.0) in turn_detector.on_tick(
        680, False, arrived_ms=680, quiet_ms=60
    )


@pytest.mark.parametrize(("speculative", "with_model", "alone"), [(150, 450, 450), (300, 600, None), (700, 1000, None)])
def test_speculation_starts_at_its_own_time_if_the_turn_is_not_over_by_then(
    speculative: int, with_model: float, alone: float | None
) -> None:
    settings = replace(MODEL, turn_endpoint_delay=300, speculative_silence_ms=speculative, fallback_silence_ms=1500)
    assert SimulatedCall(settings, eot=0.0).speak(300).pass_ms(1400).at(SpeculativeTurnEnd) == [with_model]
    settings = replace(settings, ultravad_eot_threshold=None)
    assert SimulatedCall(settings).speak(300).pass_ms(1400).at(SpeculativeTurnEnd) == ([] if alone is None else [alone])


def test_speculation_that_would_come_after_the_fallback_never_comes() -> None:
    settings = replace(MODEL, speculative_silence_ms=900, fallback_silence_ms=800)
    assert SimulatedCall(settings, eot=0.0).speak(300).pass_ms(2000).kinds()[-1] is TurnEnded
    assert SimulatedCall(settings, eot=0.0).speak(300).pass_ms(2000).of(SpeculativeTurnEnd) == []


def test_speculation_starts_once_in_each_silence_that_is_long_enough() -> None:
    settings = replace(MODEL, speculative_silence_ms=150)
    call = SimulatedCall(settings, eot=0.0).speak(300).pass_ms(400).speak(100).pass_ms(140)
    assert [event.at_ms for event in call.of(SpeculativeTurnEnd)] == [450]
    assert [event.at_ms for event in call.pass_ms(300).of(SpeculativeTurnEnd)] == [450, 950]


def test_no_speculation_without_the_setting() -> None:
    call = SimulatedCall(MODEL, eot=0.0).speak(300).pass_ms(2000)
    assert call.of(SpeculativeTurnEnd) == []


def test_speech_that_resumes_after_speculation_is_an_event_even_before_the_delay() -> None:
    settings = replace(NO_MODEL, turn_endpoint_delay=300, speculative_silence_ms=100)
    call = SimulatedCall(settings).speak(300).pass_ms(200).speak(100).pass_ms(50).speak(100)
    assert call.kinds() == [SpeechStarted, SpeculativeTurnEnd, SpeechResumed]


def test_speech_that_does_not_count_yet_starts_no_speculation() -> None:
    settings = replace(MODEL, speculative_silence_ms=100)
    call = SimulatedCall(settings, eot=0.0).agent(True).speak(200).pass_ms(290)
    assert call.kinds() == [AgentStarted, SpeechStarted, PlayoutPaused]
    call.words().pass_ms(STAND).agent(False).pass_ms(10)
    assert call.kinds()[3:] == [BargeIn, AgentStopped, SpeechStopped, SpeculativeTurnEnd, AskEndOfTurn]
    assert call.speak(10).kinds()[-1] is SpeechResumed
