"""Begin and end of speech, from probabilities and levels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from media.turn_taking.events import SpeechStarted, SpeechStopped, TurnEnded
from media.turn_taking.turn_detector import TurnDetector
from tests.media.turn_taking.turn_simulation import NO_MODEL, SILENCE, SPEECH, SimulatedCall


def test_speech_starts_at_the_threshold_and_stops_well_under_it() -> None:
    call = SimulatedCall(replace(NO_MODEL, frame_activation_threshold=0.6, turn_endpoint_delay=50))
    call.pass_ms(500, 0.59)
    assert call.events == []
    call.pass_ms(100, 0.6).pass_ms(500, 0.46)
    assert call.kinds() == [SpeechStarted]
    call.pass_ms(50, 0.44)
    assert call.kinds() == [SpeechStarted, SpeechStopped, TurnEnded]


@pytest.mark.parametrize("threshold", [0.0, 0.1, 1.0])
def test_an_extreme_threshold_still_lets_turns_begin_and_end(threshold: float) -> None:
    call = SimulatedCall(replace(NO_MODEL, frame_activation_threshold=threshold)).pass_ms(300, 1.0).pass_ms(300, 0.0)
    assert len(call.of(TurnEnded)) == 1


def test_quiet_ends_speech_while_the_probability_is_still_falling() -> None:
    turn_detector = TurnDetector(NO_MODEL)
    turn_detector.on_vad_window(480, SPEECH, 32, False)
    turn_detector.on_tick(500, False, arrived_ms=500, quiet_ms=0)
    turn_detector.on_tick(540, False, arrived_ms=540, quiet_ms=40)
    turn_detector.on_vad_window(544, 0.8, 32, False, quiet_ms=44)
    turn_detector.on_vad_window(576, 0.5, 32, False, quiet_ms=76)
    assert [type(event) for event in turn_detector.on_tick(600, False, arrived_ms=600, quiet_ms=100)] == [
        SpeechStopped,
        TurnEnded,
    ]


def test_the_delay_counts_from_the_arrival_of_the_last_speech_however_deep_the_jitter_buffer() -> None:
    turn_detector = TurnDetector(NO_MODEL)
    turn_detector.on_vad_window(500, SPEECH, 100, False)
    turn_detector.on_tick(580, False, arrived_ms=520, quiet_ms=20)
    assert TurnEnded(600, 400, 500, "delay") in turn_detector.on_tick(600, False, arrived_ms=540, quiet_ms=40)


def test_sound_after_a_quiet_end_is_judged_before_the_turn_ends() -> None:
    turn_detector = TurnDetector(NO_MODEL)
    turn_detector.on_vad_window(500, SPEECH, 32, False)
    turn_detector.on_tick(580, False, arrived_ms=580, quiet_ms=80)
    assert turn_detector.on_tick(600, False, arrived_ms=600, quiet_ms=5) == ()
    turn_detector.on_vad_window(612, SPEECH, 32, False, quiet_ms=0)
    assert turn_detector.caller_speaking


def test_a_dip_of_the_probability_in_loud_sound_does_not_end_speech() -> None:
    turn_detector = TurnDetector(NO_MODEL)
    turn_detector.on_vad_window(500, SPEECH, 100, False)
    turn_detector.on_vad_window(700, SILENCE, 200, False, loud=True)
    assert turn_detector.caller_speaking
    turn_detector.on_vad_window(740, SILENCE, 40, False, loud=True)
    assert TurnEnded(760, 400, 500, "delay") in turn_detector.on_tick(760, False)


def test_short_quiet_is_a_gap_while_the_model_is_sure_of_speech() -> None:
    turn_detector = TurnDetector(NO_MODEL)
    turn_detector.on_vad_window(500, 0.99, 100, False)
    turn_detector.on_tick(580, False, arrived_ms=580, quiet_ms=80)
    assert turn_detector.caller_speaking
    turn_detector.on_tick(600, False, arrived_ms=600, quiet_ms=100)
    assert not turn_detector.caller_speaking


def test_quiet_does_not_reach_back_before_the_speech_that_it_ends() -> None:
    turn_detector = TurnDetector(replace(NO_MODEL, min_turn_duration=0))
    turn_detector.on_vad_window(500, SPEECH, 100, False)
    turn_detector.on_vad_window(540, SILENCE, 40, False, quiet_ms=5000)
    assert TurnEnded(540, 400, 400, "delay") in turn_detector.on_tick(540, False)


def test_a_turn_does_not_begin_before_the_one_before_it_has_ended() -> None:
    turn_detector = TurnDetector(NO_MODEL)
    turn_detector.on_vad_window(500, SPEECH, 100, False)
    turn_detector.on_vad_window(540, SILENCE, 40, False)
    assert TurnEnded(600, 400, 500, "delay") in turn_detector.on_tick(600, False)
    assert turn_detector.on_vad_window(604, SPEECH, 20, False, onset_ms=250) == (SpeechStarted(604, 500, reopens=True),)


def test_the_lead_advances_the_decision() -> None:
    turn_detector = TurnDetector(NO_MODEL, lead_ms=20)
    turn_detector.on_vad_window(500, SPEECH, 500, False)
    turn_detector.on_vad_window(540, SILENCE, 40, False)
    assert turn_detector.on_tick(579, False) == ()
    assert [type(event) for event in turn_detector.on_tick(580, False)] == [SpeechStopped, TurnEnded]
