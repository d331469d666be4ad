"""Reopened turns: a caller who continues just after the end of a turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from media.turn_taking.constants import REOPEN_MS
from media.turn_taking.events import (
    AgentStarted,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
)
from media.turn_taking.turn_detector import TurnDetector
from tests.media.turn_taking.turn_simulation import NO_MODEL, SPEECH, SimulatedCall

STERN = replace(NO_MODEL, min_interruption_duration=500, post_speech_cooldown=2000)
"""Speech over the agent is hard to confirm with these."""


def call_after_first_turn() -> SimulatedCall:
    """A call at 400 ms, at the end of the caller's first turn."""
    call = SimulatedCall(STERN).speak(300).pass_ms(100)
    assert call.at(TurnEnded) == [400]
    return call


def test_an_agent_that_becomes_audible_over_a_reopened_turn_is_paused_at_once() -> None:
    call = call_after_first_turn().pass_ms(1000).speak(60).agent(True)
    assert call.of(SpeechStarted)[-1] == SpeechStarted(1410, 1400, reopens=True)
    assert call.at(PlayoutPaused) == call.at(AgentStarted) == [1460]


@pytest.mark.parametrize("backchannel", [False, True])
def test_any_words_in_a_reopened_turn_interrupt(backchannel: bool) -> None:
    call = call_after_first_turn().pass_ms(200).speak(60).agent(True).speak(100).words(backchannel=backchannel)
    assert call.of(BargeIn) == [BargeIn(760, 600, reopens=True)]
    assert call.agent(False).pass_ms(100).of(TurnEnded)[-1] == TurnEnded(860, 600, 760, "delay")


def test_words_that_were_there_before_the_agent_was_audible_interrupt_without_a_pause() -> None:
    call = call_after_first_turn().pass_ms(200).speak(60).words().agent(True)
    assert call.kinds()[-2:] == [AgentStarted, BargeIn]


def test_just_after_the_turn_an_audible_agent_is_paused_soon() -> None:
    call = call_after_first_turn().pass_ms(100).agent(True).pass_ms(REOPEN_MS - 100).speak(50)
    assert call.of(SpeechStarted)[-1].reopens
    assert call.of(PlayoutPaused) == []
    assert call.speak(10).at(PlayoutPaused) == [400 + REOPEN_MS + 60]


def test_later_speech_over_the_agent_is_unconfirmed_as_usual() -> None:
    call = call_after_first_turn().pass_ms(100).agent(True).pass_ms(REOPEN_MS - 90).speak(490)
    assert not call.of(SpeechStarted)[-1].reopens
    assert call.of(PlayoutPaused) == []
    assert len(call.speak(10).of(PlayoutPaused)) == 1


def test_a_cough_just_after_the_turn_only_pauses_the_agent() -> None:
    call = call_after_first_turn().pass_ms(200).speak(100).agent(True).speak(100).pass_ms(2000)
    assert call.kinds()[-3:] == [PlayoutPaused, PlayoutResumed, TurnDropped]
    assert call.of(TurnDropped)[0].reason == "no_words"


def test_a_click_just_after_the_turn_does_not_pause_the_agent() -> None:
    assert call_after_first_turn().agent(True).pass_ms(100).speak(50).pass_ms(100).of(PlayoutPaused) == []


def test_speech_after_the_end_of_the_response_does_not_reopen_the_turn() -> None:
    call = call_after_first_turn().agent(True).pass_ms(200).agent(False).pass_ms(100).speak(300)
    assert not call.of(SpeechStarted)[-1].reopens
    assert [event.reason for event in call.pass_ms(500).of(TurnDropped)] == ["cooldown"]


def test_a_caller_who_interrupted_continues_without_the_cooldown() -> None:
    call = SimulatedCall(STERN).agent(True).speak(400).words().speak(200).agent(False).pass_ms(100)
    assert call.at(TurnEnded) == [700]
    call.pass_ms(100).speak(200).pass_ms(100)
    assert call.of(SpeechStarted)[-1].reopens
    assert call.at(TurnEnded) == [700, 1100]


def test_flushed_audio_that_stops_after_the_turn_is_not_a_played_response() -> None:
    call = SimulatedCall(replace(STERN, turn_endpoint_delay=50)).agent(True).speak(400).words().speak(200).pass_ms(50)
    assert call.at(TurnEnded) == [650]
    assert call.agent(False).pass_ms(100).speak(100).of(SpeechStarted)[-1].reopens


def test_no_turn_reopens_before_the_first_turn() -> None:
    assert not SimulatedCall(STERN).speak(300).of(SpeechStarted)[0].reopens
    assert not SimulatedCall(STERN).agent(True).speak(300).of(SpeechStarted)[0].reopens


def test_no_turn_reopens_over_uninterruptible_speech() -> None:
    call = call_after_first_turn().set_uninterruptible(True).agent(True).pass_ms(100).speak(1000).words().pass_ms(500)
    assert not call.of(SpeechStarted)[-1].reopens
    assert call.of(PlayoutPaused) + call.of(BargeIn) == []
    assert call.of(TurnDropped)[0].reason == "protected"


def test_speech_that_began_before_the_agent_was_audible_does_not_overlap_it() -> None:
    turn_detector = TurnDetector(STERN)
    turn_detector.on_tick(1000, True)
    assert SpeechStarted(1030, 980) in turn_detector.on_vad_window(1030, SPEECH, 32, True, onset_ms=50)
    assert turn_detector.on_tick(1040, True) == (PlayoutPaused(1040),)
