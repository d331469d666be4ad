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
from tests.media.turns.turn_simulation import NO_MODEL, SPEECH, Talk

STERN = replace(NO_MODEL, min_interruption_duration=500, post_speech_cooldown=2000)
"""Guards that are hard to get past."""


def said_once() -> Talk:
    """The caller's turn is over since 400 ms, and the clock stands there."""
    talk = Talk(STERN).speak(300).pass_ms(100)
    assert talk.at(TurnEnded) == [400]
    return talk


def test_the_agent_who_becomes_audible_while_the_caller_goes_on_is_paused_at_once() -> None:
    talk = said_once().pass_ms(1000).speak(60).agent(True)
    assert talk.of(SpeechStarted)[-1] == SpeechStarted(1410, 1400, reopens=True)
    assert talk.at(PlayoutPaused) == talk.at(AgentStarted) == [1460]


@pytest.mark.parametrize("backchannel", [False, True])
def test_any_words_of_a_caller_who_goes_on_take_the_turn_back(backchannel: bool) -> None:
    talk = said_once().pass_ms(200).speak(60).agent(True).speak(100).words(backchannel=backchannel)
    assert talk.of(BargeIn) == [BargeIn(760, 600, reopens=True)]
    assert talk.agent(False).pass_ms(100).of(TurnEnded)[-1] == TurnEnded(860, 600, 760, "delay")


def test_words_that_were_there_before_the_agent_was_audible_interrupt_without_a_pause() -> None:
    talk = said_once().pass_ms(200).speak(60).words().agent(True)
    assert talk.kinds()[-2:] == [AgentStarted, BargeIn]


def test_just_after_the_turn_the_agent_who_has_become_audible_is_paused_soon() -> None:
    talk = said_once().pass_ms(100).agent(True).pass_ms(REOPEN_MS - 100).speak(50)
    assert talk.of(SpeechStarted)[-1].reopens
    assert talk.of(PlayoutPaused) == []
    assert talk.speak(10).at(PlayoutPaused) == [400 + REOPEN_MS + 60]


def test_later_the_agent_is_guarded_as_ever() -> None:
    talk = said_once().pass_ms(100).agent(True).pass_ms(REOPEN_MS - 90).speak(490)
    assert not talk.of(SpeechStarted)[-1].reopens
    assert talk.of(PlayoutPaused) == []
    assert len(talk.speak(10).of(PlayoutPaused)) == 1


def test_a_cough_just_after_the_turn_only_pauses_the_agent() -> None:
    talk = said_once().pass_ms(200).speak(100).agent(True).speak(100).pass_ms(2000)
    assert talk.kinds()[-3:] == [PlayoutPaused, PlayoutResumed, TurnDropped]
    assert talk.of(TurnDropped)[0].reason == "no_words"


def test_a_click_just_after_the_turn_does_not_pause_the_agent() -> None:
    assert said_once().agent(True).pass_ms(100).speak(50).pass_ms(100).of(PlayoutPaused) == []


def test_who_speaks_after_the_answer_was_heard_out_does_not_go_on() -> None:
    talk = said_once().agent(True).pass_ms(200).agent(False).pass_ms(100).speak(300)
    assert not talk.of(SpeechStarted)[-1].reopens
    assert [event.reason for event in talk.pass_ms(500).of(TurnDropped)] == ["cooldown"]


def test_who_has_interrupted_goes_on_without_the_cooldown() -> None:
    talk = Talk(STERN).agent(True).speak(400).words().speak(200).agent(False).pass_ms(100)
    assert talk.at(TurnEnded) == [700]
    talk.pass_ms(100).speak(200).pass_ms(100)
    assert talk.of(SpeechStarted)[-1].reopens
    assert talk.at(TurnEnded) == [700, 1100]


def test_sound_that_was_cut_and_stops_after_the_turn_is_no_answer_that_was_heard() -> None:
    talk = Talk(replace(STERN, turn_endpoint_delay=50)).agent(True).speak(400).words().speak(200).pass_ms(50)
    assert talk.at(TurnEnded) == [650]
    assert talk.agent(False).pass_ms(100).speak(100).of(SpeechStarted)[-1].reopens


def test_there_is_nothing_to_go_on_with_before_the_first_turn() -> None:
    assert not Talk(STERN).speak(300).of(SpeechStarted)[0].reopens
    assert not Talk(STERN).agent(True).speak(300).of(SpeechStarted)[0].reopens


def test_nobody_goes_on_over_what_is_protected() -> None:
    talk = said_once().protect(True).agent(True).pass_ms(100).speak(1000).words().pass_ms(500)
    assert not talk.of(SpeechStarted)[-1].reopens
    assert talk.of(PlayoutPaused) + talk.of(BargeIn) == []
    assert talk.of(TurnDropped)[0].reason == "protected"


def test_speech_that_began_before_the_agent_was_audible_is_not_over_it_though_it_is_noticed_later() -> None:
    turn_detector = TurnDetector(STERN)
    turn_detector.on_tick(1000, True)
    assert SpeechStarted(1030, 980) in turn_detector.on_vad_window(1030, SPEECH, 32, True, onset_ms=50)
    assert turn_detector.on_tick(1040, True) == (PlayoutPaused(1040),)
