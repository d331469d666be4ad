"""Barge-in: speech over the agent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from media.turn_taking.events import (
    AgentStarted,
    AgentStopped,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
)
from tests.media.turn_taking.turn_simulation import NO_MODEL, STAND, SimulatedCall


@pytest.mark.parametrize("least", [0, 100, 500])
def test_playout_pauses_after_the_minimum_of_interruption(least: int) -> None:
    call = SimulatedCall(replace(NO_MODEL, min_interruption_duration=least)).agent(True).pass_ms(1000).speak(600)
    assert [event.at_ms for event in call.of(PlayoutPaused)] == [max(1000 + least, 1010)]


def test_speech_under_the_minimum_of_interruption_leaves_the_agent_alone() -> None:
    call = SimulatedCall(replace(NO_MODEL, min_interruption_duration=300)).agent(True).speak(290).words().pass_ms(1000)
    assert call.kinds() == [AgentStarted, SpeechStarted, TurnDropped]
    assert call.of(TurnDropped)[0].reason == "no_words"


def test_words_during_a_pause_are_a_barge_in_and_the_turn_includes_all_of_the_speech() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).pass_ms(1000).speak(300).words().speak(STAND)
    assert call.of(BargeIn) == [BargeIn(at_ms=1300 + STAND, speech_start_ms=1000)]
    call.agent(False).speak(220).pass_ms(200)
    assert call.of(TurnEnded) == [TurnEnded(1800, 1000, 1700, "delay")]
    assert call.of(PlayoutResumed) == []


def test_words_before_the_minimum_interrupt_at_the_minimum_without_a_pause() -> None:
    call = SimulatedCall(replace(NO_MODEL, min_interruption_duration=500)).agent(True).speak(200).words().speak(400)
    assert call.of(PlayoutPaused) == []
    assert [event.at_ms for event in call.of(BargeIn)] == [500]


def test_a_turn_that_interrupted_is_never_too_short() -> None:
    call = SimulatedCall(replace(NO_MODEL, min_turn_duration=2000)).agent(True).speak(200).words().speak(200)
    assert len(call.agent(False).pass_ms(500).of(TurnEnded)) == 1


def test_playout_resumes_after_two_seconds_without_words() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(3000)
    assert [event.at_ms for event in call.of(PlayoutPaused)] == [100]
    assert [event.at_ms for event in call.of(PlayoutResumed)] == [2100]


def test_playout_resumes_when_the_speech_ended_without_words() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(200).pass_ms(2000)
    assert [event.at_ms for event in call.of(PlayoutResumed)] == [500]
    assert [event.reason for event in call.of(TurnDropped)] == ["no_words"]


def test_words_that_come_just_after_playout_resumed_still_interrupt() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(200).pass_ms(400).words().pass_ms(STAND)
    assert call.kinds()[-2:] == [PlayoutResumed, BargeIn]
    assert call.agent(False).pass_ms(200).of(TurnEnded)[0].speech_end_ms == 200


def test_an_agent_that_starts_to_speak_over_the_caller_is_interrupted_too() -> None:
    call = SimulatedCall(NO_MODEL).speak(500).words().agent(True).speak(10)
    assert call.of(BargeIn) == [BargeIn(500, 0)]


def test_uninterruptible_speech_is_neither_paused_nor_interrupted() -> None:
    call = SimulatedCall(NO_MODEL)
    call.set_uninterruptible(True)
    call.agent(True).speak(1000).words().pass_ms(500)
    assert call.kinds() == [AgentStarted, SpeechStarted, TurnDropped]
    assert call.of(TurnDropped)[0].reason == "protected"


def test_set_uninterruptible_ends_a_pause() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(300)
    call.set_uninterruptible(True)
    assert call.kinds()[-2:] == [PlayoutPaused, PlayoutResumed]


def test_a_pause_ends_when_there_is_nothing_left_to_resume() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(200).agent(False)
    assert call.kinds()[-3:] == [PlayoutPaused, AgentStopped, PlayoutResumed]


def test_a_backchannel_only_pauses_the_agent() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(400).words(backchannel=True).pass_ms(2000)
    assert call.kinds() == [AgentStarted, SpeechStarted, PlayoutPaused, PlayoutResumed, TurnDropped]
    assert call.at(PlayoutResumed) == [700]
    assert [event.reason for event in call.of(TurnDropped)] == ["backchannel"]


@pytest.mark.parametrize("wait", [0, 200, 900])
def test_words_after_a_backchannel_interrupt(wait: int) -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(400).words(backchannel=True).pass_ms(wait).words().pass_ms(STAND)
    assert call.of(BargeIn) == [BargeIn(400 + wait + STAND, 0)]


def test_words_that_the_recognizer_retracts_at_once_do_not_interrupt() -> None:
    call = (
        SimulatedCall(NO_MODEL).agent(True).speak(300).words().speak(STAND - 10).words(backchannel=True).pass_ms(2000)
    )
    assert call.kinds() == [AgentStarted, SpeechStarted, PlayoutPaused, PlayoutResumed, TurnDropped]
    assert call.of(TurnDropped)[0].reason == "backchannel"


def test_words_count_from_their_first_recognition_however_they_change() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(300).words().speak(100).words().speak(STAND)
    assert call.at(BargeIn) == [300 + STAND]


def test_playout_does_not_resume_while_the_recognizer_has_tentative_words() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(200).pass_ms(290).words().pass_ms(STAND)
    assert call.kinds() == [AgentStarted, SpeechStarted, PlayoutPaused, BargeIn]


def test_a_backchannel_that_is_recognized_late_does_not_interrupt() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(200).pass_ms(600).words(backchannel=True).pass_ms(1000)
    assert call.of(BargeIn) == []
    assert [event.reason for event in call.of(TurnDropped)] == ["backchannel"]


def test_a_backchannel_to_a_silent_agent_is_a_turn() -> None:
    call = SimulatedCall(NO_MODEL).speak(300).words(backchannel=True).pass_ms(200)
    assert call.of(TurnEnded) == [TurnEnded(400, 0, 300, "delay")]


def test_new_speech_after_a_backchannel_pauses_the_agent_again() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(200).words(backchannel=True).pass_ms(600).speak(300)
    assert call.at(PlayoutPaused) == [100, 900]
    assert len(call.of(SpeechStarted)) == 1
    assert call.words().speak(STAND).at(BargeIn) == [1100 + STAND]


def test_a_yes_over_the_last_words_of_the_agent_is_a_reply() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(300).words(backchannel=True).pass_ms(600)
    assert call.at(PlayoutResumed) == [600]
    call.agent(False).pass_ms(10)
    assert call.of(TurnEnded) == [TurnEnded(910, 0, 300, "delay")]


def test_tentative_words_over_the_last_words_of_the_agent_are_a_reply() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(300).pass_ms(200).words().pass_ms(50).agent(False).pass_ms(20)
    assert call.of(BargeIn) == []
    assert call.of(TurnEnded) == [TurnEnded(570, 0, 300, "delay")]


@pytest.mark.parametrize("heard", [True, False])
def test_early_or_wordless_speech_is_not_a_reply_to_the_agent(heard: bool) -> None:
    call = SimulatedCall(NO_MODEL).agent(True).speak(300)
    if heard:
        call.words(backchannel=True).pass_ms(800)
    else:
        call.pass_ms(600)
    assert call.agent(False).pass_ms(1000).of(TurnEnded) == []
    assert [event.reason for event in call.of(TurnDropped)] == ["backchannel" if heard else "no_words"]


def test_an_open_turn_that_continues_over_the_agent_pauses_it_after_the_minimum() -> None:
    settings = replace(NO_MODEL, turn_endpoint_delay=1000, min_interruption_duration=300)
    call = SimulatedCall(settings).speak(500).pass_ms(100).agent(True).pass_ms(100).speak(400)
    assert call.at(PlayoutPaused) == [1000]


def test_speech_that_goes_on_after_the_agent_is_a_turn_whatever_its_words() -> None:
    call = SimulatedCall(NO_MODEL).agent(True).pass_ms(100).agent(False).pass_ms(100).speak(500).agent(True)
    assert call.at(PlayoutPaused) == [700]
    assert call.words(backchannel=True).of(BargeIn) == [BargeIn(700, 200)]
