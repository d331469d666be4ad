"""A caller who goes on just after the turn was taken for over has not to fight for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from media.turns.constants import REOPEN_MS
from media.turns.events import (
    AgentStarted,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
)
from media.turns.turn_detector import TurnDetector
from tests.media.turns.turn_simulation import NO_MODEL, SPEECH, SimulatedCall

STERN = replace(NO_MODEL, min_interruption_duration=500, post_speech_cooldown=2000)
"""Guards that are hard to get past."""


def said_once() -> SimulatedCall:
    """The caller's turn is over since 400 ms, and the clock stands there."""
    call = SimulatedCall(STERN).speak(300).pass_ms(100)
    assert call.at(TurnEnded) == [400]
    return call


def test_the_agent_who_becomes_audible_while_the_caller_goes_on_is_paused_at_once() -> None:
    call = said_once().pass_ms(1000).speak(60).agent(True)
    assert call.of(SpeechStarted)[-1] == SpeechStarted(1410, 1400, reopens=True)
    assert call.at(PlayoutPaused) == call.at(AgentStarted) == [1460]


@pytest.mark.parametrize("backchannel", [False, True])
def test_any_words_of_a_caller_who_goes_on_take_the_turn_back(backchannel: bool) -> None:
    call = said_once().pass_ms(200).speak(60).agent(True).speak(100).words(backchannel=backchannel)
    assert call.of(BargeIn) == [BargeIn(760, 600, reopens=True)]
    assert call.agent(False).pass_ms(100).of(TurnEnded)[-1] == TurnEnded(860, 600, 760, "delay")


def test_words_that_were_there_before_the_agent_was_audible_interrupt_without_a_pause() -> None:
    call = said_once().pass_ms(200).speak(60).words().agent(True)
    assert call.kinds()[-2:] == [AgentStarted, BargeIn]


def test_just_after_the_turn_the_agent_who_has_become_audible_is_paused_soon() -> None:
    call = said_once().pass_ms(100).agent(True).pass_ms(REOPEN_MS - 100).speak(50)
    assert call.of(SpeechStarted)[-1].reopens
    assert call.of(PlayoutPaused) == []
    assert call.speak(10).at(PlayoutPaused) == [400 + REOPEN_MS + 60]


def test_later_the_agent_is_guarded_as_ever() -> None:
    call = said_once().pass_ms(100).agent(True).pass_ms(REOPEN_MS - 90).speak(490)
    assert not call.of(SpeechStarted)[-1].reopens
    assert call.of(PlayoutPaused) == []
    assert len(call.speak(10).of(PlayoutPaused)) == 1


def test_a_cough_just_after_the_turn_only_pauses_the_agent() -> None:
    call = said_once().pass_ms(200).speak(100).agent(True).speak(100).pass_ms(2000)
    assert call.kinds()[-3:] == [PlayoutPaused, PlayoutResumed, TurnDropped]
    assert call.of(TurnDropped)[0].reason == "no_words"


def test_a_click_just_after_the_turn_does_not_pause_the_agent() -> None:
    assert said_once().agent(True).pass_ms(100).speak(50).pass_ms(100).of(PlayoutPaused) == []


def test_who_speaks_after_the_answer_was_heard_out_does_not_go_on() -> None:
    call = said_once().agent(True).pass_ms(200).agent(False).pass_ms(100).speak(300)
    assert not call.of(SpeechStarted)[-1].reopens
    assert [event.reason for event in call.pass_ms(500).of(TurnDropped)] == ["cooldown"]


def test_who_has_interrupted_goes_on_without_the_cooldown() -> None:
    call = SimulatedCall(STERN).agent(True).speak(400).words().speak(200).agent(False).pass_ms(100)
    assert call.at(TurnEnded) == [700]
    call.pass_ms(100).speak(200).pass_ms(100)
    assert call.of(SpeechStarted)[-1].reopens
    assert call.at(TurnEnded) == [700, 1100]


def test_sound_that_was_cut_and_stops_after_the_turn_is_no_answer_that_was_heard() -> None:
    call = SimulatedCall(replace(STERN, turn_endpoint_delay=50)).agent(True).speak(400).words().speak(200).pass_ms(50)
    assert call.at(TurnEnded) == [650]
    assert call.agent(False).pass_ms(100).speak(100).of(SpeechStarted)[-1].reopens


def test_there_is_nothing_to_go_on_with_before_the_first_turn() -> None:
    assert not SimulatedCall(STERN).speak(300).of(SpeechStarted)[0].reopens
    assert not SimulatedCall(STERN).agent(True).speak(300).of(SpeechStarted)[0].reopens


def test_nobody_goes_on_over_what_is_protected() -> None:
    call = said_once().protect(True).agent(True).pass_ms(100).speak(1000).words().pass_ms(500)
    assert not call.of(SpeechStarted)[-1].reopens
    assert call.of(PlayoutPaused) + call.of(BargeIn) == []
    assert call.of(TurnDropped)[0].reason == "protected"


def test_speech_that_began_before_the_agent_was_audible_is_not_over_it_though_it_is_noticed_later() -> None:
    turn_detector = TurnDetector(STERN)
    turn_detector.on_tick(1000, True)
    assert SpeechStarted(1030, 980) in turn_detector.on_vad_window(1030, SPEECH, 32, True, onset_ms=50)
    assert turn_detector.on_tick(1040, True) == (PlayoutPaused(1040),)
