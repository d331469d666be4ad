"""Every agent setting of turn taking shows its effect, on a virtual clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from media.events import (
    AgentStarted,
    AgentStopped,
    AskEndOfTurn,
    Interrupted,
    Pause,
    Resume,
    Speculate,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnEnded,
    TurnEvent,
)
from media.turns import Turns, TurnSettings

Kind = TypeVar("Kind", bound=TurnEvent)
SPAN = 10
SPEECH, SILENCE = 0.9, 0.0
NO_MODEL = TurnSettings(ultravad_eot_threshold=None, speculative_silence_ms=None)


class Talk:
    """A call on a virtual clock, in windows of 10 ms. The end-of-turn model answers `eot` whenever it is asked."""

    def __init__(self, settings: TurnSettings = NO_MODEL, eot: float | None = None) -> None:
        self.turns = Turns(settings)
        self.now = 0.0
        self.audible = False
        self.eot = eot
        self.events: list[TurnEvent] = []

    def take(self, events: tuple[TurnEvent, ...]) -> None:
        for event in events:
            self.events.append(event)
            if isinstance(event, AskEndOfTurn):
                self.take(self.turns.eot(self.now, self.eot, event.at_ms))

    def pass_ms(self, ms: int, p: float = SILENCE) -> Talk:
        for _ in range(ms // SPAN):
            self.now += SPAN
            self.take(self.turns.frame(self.now, p, SPAN, self.audible))
            self.take(self.turns.tick(self.now, self.audible))
        return self

    def speak(self, ms: int) -> Talk:
        return self.pass_ms(ms, SPEECH)

    def agent(self, audible: bool) -> Talk:
        self.audible = audible
        self.take(self.turns.tick(self.now, audible))
        return self

    def words(self) -> Talk:
        self.take(self.turns.words(self.now))
        return self

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    def kinds(self) -> list[type[TurnEvent]]:
        return [type(event) for event in self.events]


def test_a_turn_ends_at_turn_endpoint_delay_when_no_model_is_asked() -> None:
    talk = Talk(replace(NO_MODEL, turn_endpoint_delay=300)).pass_ms(100).speak(500).pass_ms(290)
    assert talk.kinds() == [SpeechStarted]
    talk.pass_ms(10)
    assert talk.of(SpeechStarted) == [SpeechStarted(at_ms=110, began_ms=100)]
    assert talk.of(SpeechStopped) == [SpeechStopped(at_ms=900, ended_ms=600)]
    assert talk.of(TurnEnded) == [TurnEnded(at_ms=900, speech_start_ms=100, speech_end_ms=600, reason="delay")]


def test_speech_that_goes_on_before_the_delay_starts_the_silence_again() -> None:
    talk = Talk(replace(NO_MODEL, turn_endpoint_delay=300)).speak(300).pass_ms(290).speak(10).pass_ms(290)
    assert talk.kinds() == [SpeechStarted]
    assert talk.pass_ms(10).of(TurnEnded)[0].speech_start_ms == 0


def test_speech_starts_at_the_threshold_and_stops_well_under_it() -> None:
    talk = Talk(replace(NO_MODEL, frame_activation_threshold=0.6, turn_endpoint_delay=50))
    talk.pass_ms(500, 0.59)
    assert talk.events == []
    talk.pass_ms(100, 0.6).pass_ms(500, 0.46)
    assert talk.kinds() == [SpeechStarted]
    talk.pass_ms(50, 0.44)
    assert talk.kinds() == [SpeechStarted, SpeechStopped, TurnEnded]


@pytest.mark.parametrize("threshold", [0.0, 0.1, 1.0])
def test_an_extreme_threshold_still_lets_turns_begin_and_end(threshold: float) -> None:
    talk = Talk(replace(NO_MODEL, frame_activation_threshold=threshold)).pass_ms(300, 1.0).pass_ms(300, 0.0)
    assert len(talk.of(TurnEnded)) == 1


def test_the_model_is_asked_at_the_delay_and_again_every_200_ms() -> None:
    talk = Talk(replace(NO_MODEL, ultravad_eot_threshold=0.5), eot=0.49).speak(300).pass_ms(750)
    assert [event.at_ms for event in talk.of(AskEndOfTurn)] == [400, 600, 800, 1000]
    assert talk.of(TurnEnded) == []


def test_the_model_ends_the_turn_at_its_threshold() -> None:
    talk = Talk(replace(NO_MODEL, ultravad_eot_threshold=0.5), eot=0.49).speak(300).pass_ms(250)
    talk.eot = 0.5
    assert talk.pass_ms(50).of(TurnEnded) == [TurnEnded(600, 0, 300, "model", probability=0.5)]


def test_an_answer_of_the_model_counts_only_while_the_silence_lasts() -> None:
    talk = Talk(replace(NO_MODEL, ultravad_eot_threshold=0.5)).speak(300).pass_ms(120).speak(50)
    assert talk.turns.eot(talk.now, 0.9, talk.now) == ()
    assert talk.of(SpeechResumed) == [SpeechResumed(430)]


def test_the_fallback_ends_a_turn_that_the_model_never_ends() -> None:
    settings = replace(NO_MODEL, ultravad_eot_threshold=0.5, fallback_silence_ms=1200)
    assert Talk(settings, eot=0.0).speak(300).pass_ms(1190).of(TurnEnded) == []
    assert Talk(settings, eot=0.0).speak(300).pass_ms(1200).of(TurnEnded) == [TurnEnded(1500, 0, 300, "fallback")]


def test_speculation_starts_once_in_each_silence_that_lasts_so_long() -> None:
    settings = replace(NO_MODEL, speculative_silence_ms=150, ultravad_eot_threshold=0.5)
    talk = Talk(settings, eot=0.0).speak(300).pass_ms(400).speak(100).pass_ms(140)
    assert [event.at_ms for event in talk.of(Speculate)] == [450]
    assert [event.at_ms for event in talk.pass_ms(300).of(Speculate)] == [450, 950]


def test_no_speculation_without_the_setting() -> None:
    talk = Talk(replace(NO_MODEL, ultravad_eot_threshold=0.5), eot=0.0).speak(300).pass_ms(2000)
    assert talk.of(Speculate) == []


@pytest.mark.parametrize(("spoken", "kept"), [(190, False), (200, True)])
def test_a_turn_needs_its_minimum_of_speech(spoken: int, kept: bool) -> None:
    talk = Talk(replace(NO_MODEL, min_turn_duration=200)).speak(spoken).pass_ms(500)
    assert len(talk.of(TurnEnded)) == kept
    assert [event.reason for event in talk.of(TurnDropped)] == ([] if kept else ["short"])


def test_pauses_within_a_turn_are_not_speech_of_it() -> None:
    talk = Talk(replace(NO_MODEL, min_turn_duration=200)).speak(90).pass_ms(80).speak(90).pass_ms(500)
    assert [event.reason for event in talk.of(TurnDropped)] == ["short"]


@pytest.mark.parametrize("least", [0, 100, 500])
def test_playout_pauses_after_the_minimum_of_interruption(least: int) -> None:
    talk = Talk(replace(NO_MODEL, min_interruption_duration=least)).agent(True).pass_ms(1000).speak(600)
    assert [event.at_ms for event in talk.of(Pause)] == [max(1000 + least, 1010)]


def test_speech_under_the_minimum_of_interruption_leaves_the_agent_alone() -> None:
    talk = Talk(replace(NO_MODEL, min_interruption_duration=300)).agent(True).speak(290).words().pass_ms(1000)
    assert talk.kinds() == [AgentStarted, SpeechStarted, TurnDropped]
    assert talk.of(TurnDropped)[0].reason == "no_words"


def test_words_make_a_pause_an_interruption_and_the_speech_a_turn_from_its_beginning() -> None:
    talk = Talk(NO_MODEL).agent(True).pass_ms(1000).speak(300).words()
    assert talk.of(Interrupted) == [Interrupted(at_ms=1300, speech_start_ms=1000)]
    talk.agent(False).speak(200).pass_ms(200)
    assert talk.of(TurnEnded) == [TurnEnded(1600, 1000, 1500, "delay")]
    assert talk.of(Resume) == []


def test_words_before_the_minimum_interrupt_at_the_minimum_without_a_pause() -> None:
    talk = Talk(replace(NO_MODEL, min_interruption_duration=300)).agent(True).speak(200).words().speak(200)
    assert talk.of(Pause) == []
    assert [event.at_ms for event in talk.of(Interrupted)] == [300]


def test_a_turn_that_interrupted_is_never_too_short() -> None:
    talk = Talk(replace(NO_MODEL, min_turn_duration=2000)).agent(True).speak(200).words().agent(False).pass_ms(500)
    assert len(talk.of(TurnEnded)) == 1


def test_playout_resumes_after_two_seconds_without_words() -> None:
    talk = Talk(NO_MODEL).agent(True).speak(3000)
    assert [event.at_ms for event in talk.of(Pause)] == [100]
    assert [event.at_ms for event in talk.of(Resume)] == [2100]


def test_playout_resumes_when_the_speech_ended_without_words() -> None:
    talk = Talk(NO_MODEL).agent(True).speak(200).pass_ms(2000)
    assert [event.at_ms for event in talk.of(Resume)] == [500]
    assert [event.reason for event in talk.of(TurnDropped)] == ["no_words"]


def test_words_that_come_just_after_playout_resumed_still_interrupt() -> None:
    talk = Talk(NO_MODEL).agent(True).speak(200).pass_ms(400).words()
    assert talk.kinds()[-2:] == [Resume, Interrupted]
    assert talk.agent(False).pass_ms(200).of(TurnEnded)[0].speech_end_ms == 200


def test_an_agent_that_starts_to_speak_over_the_caller_is_interrupted_too() -> None:
    talk = Talk(NO_MODEL).speak(500).words().agent(True).speak(10)
    assert talk.of(Interrupted) == [Interrupted(500, 0)]


def test_what_is_protected_is_neither_paused_nor_interrupted() -> None:
    talk = Talk(NO_MODEL)
    talk.take(talk.turns.protect(True))
    talk.agent(True).speak(1000).words().pass_ms(500)
    assert talk.kinds() == [AgentStarted, SpeechStarted, TurnDropped]
    assert talk.of(TurnDropped)[0].reason == "protected"


def test_protection_that_begins_in_a_pause_ends_the_pause() -> None:
    talk = Talk(NO_MODEL).agent(True).speak(300)
    talk.take(talk.turns.protect(True))
    assert talk.kinds()[-2:] == [Pause, Resume]


def test_speech_that_outlasts_a_protected_message_counts_from_its_beginning() -> None:
    talk = Talk(replace(NO_MODEL, post_speech_cooldown=200))
    talk.take(talk.turns.protect(True))
    talk.agent(True).speak(500).agent(False).speak(300).pass_ms(200)
    assert talk.of(TurnEnded) == [TurnEnded(900, 0, 800, "delay")]


def test_speech_that_begins_and_ends_inside_the_cooldown_counts_for_nothing() -> None:
    talk = Talk(replace(NO_MODEL, post_speech_cooldown=400)).agent(True).pass_ms(100).agent(False)
    talk.pass_ms(50).speak(300).pass_ms(1000)
    assert [event.reason for event in talk.of(TurnDropped)] == ["cooldown"]
    assert talk.of(TurnEnded) == []


def test_speech_that_outlasts_the_cooldown_counts_from_its_true_beginning() -> None:
    talk = Talk(replace(NO_MODEL, post_speech_cooldown=400)).agent(True).pass_ms(100).agent(False)
    talk.pass_ms(50).speak(400).pass_ms(500)
    assert talk.of(TurnEnded) == [TurnEnded(650, 150, 550, "delay")]


def test_speech_after_the_cooldown_is_an_ordinary_turn() -> None:
    talk = Talk(replace(NO_MODEL, post_speech_cooldown=0)).agent(True).pass_ms(100).agent(False)
    assert len(talk.pass_ms(10).speak(100).pass_ms(200).of(TurnEnded)) == 1
    assert [event.at_ms for event in talk.of(AgentStopped)] == [100]


def test_null_means_the_default_except_where_it_means_off() -> None:
    empty = TurnSettings(None, None, None, None, None, None, None, None)
    assert empty.resolved() == TurnSettings(ultravad_eot_threshold=None, speculative_silence_ms=None)


def test_the_lead_decides_so_much_before_the_delay() -> None:
    turns = Turns(NO_MODEL, lead_ms=20)
    turns.frame(500, SPEECH, 500, False)
    turns.frame(540, SILENCE, 40, False)
    assert turns.tick(579, False) == ()
    assert [type(event) for event in turns.tick(580, False)] == [SpeechStopped, TurnEnded]


def test_quiet_ends_speech_while_the_probability_is_still_falling() -> None:
    turns = Turns(NO_MODEL)
    turns.frame(480, SPEECH, 32, False)
    turns.tick(500, False, heard_ms=500, quiet_ms=0)
    turns.tick(540, False, heard_ms=540, quiet_ms=40)
    turns.frame(544, 0.8, 32, False, quiet_ms=44)
    turns.frame(576, 0.5, 32, False, quiet_ms=76)
    assert [type(event) for event in turns.tick(600, False, heard_ms=600, quiet_ms=100)] == [SpeechStopped, TurnEnded]


def test_the_delay_counts_from_the_arrival_of_the_last_speech_however_late_it_is_heard() -> None:
    turns = Turns(NO_MODEL)
    turns.frame(500, SPEECH, 100, False)
    turns.tick(580, False, heard_ms=520, quiet_ms=20)
    assert TurnEnded(600, 400, 500, "delay") in turns.tick(600, False, heard_ms=540, quiet_ms=40)


def test_sound_after_a_quiet_end_is_judged_before_the_turn_ends() -> None:
    turns = Turns(NO_MODEL)
    turns.frame(500, SPEECH, 32, False)
    turns.tick(580, False, heard_ms=580, quiet_ms=80)
    assert turns.tick(600, False, heard_ms=600, quiet_ms=5) == ()
    turns.frame(612, SPEECH, 32, False, quiet_ms=0)
    assert turns.talking


def test_a_dip_of_the_probability_while_the_sound_stays_loud_is_no_end() -> None:
    turns = Turns(NO_MODEL)
    turns.frame(500, SPEECH, 100, False)
    turns.frame(700, SILENCE, 200, False, loud=True)
    assert turns.talking
    turns.frame(740, SILENCE, 40, False, loud=True)
    assert TurnEnded(760, 400, 500, "delay") in turns.tick(760, False)


def test_short_quiet_is_a_gap_while_the_model_is_sure_of_speech() -> None:
    turns = Turns(NO_MODEL)
    turns.frame(500, 0.99, 100, False)
    turns.tick(580, False, heard_ms=580, quiet_ms=80)
    assert turns.talking
    turns.tick(600, False, heard_ms=600, quiet_ms=100)
    assert not turns.talking


def test_quiet_does_not_reach_back_before_the_speech_that_it_ends() -> None:
    turns = Turns(replace(NO_MODEL, min_turn_duration=0))
    turns.frame(500, SPEECH, 100, False)
    turns.frame(540, SILENCE, 40, False, quiet_ms=5000)
    assert TurnEnded(540, 400, 400, "delay") in turns.tick(540, False)


def test_a_pause_ends_when_there_is_nothing_left_to_resume() -> None:
    talk = Talk(NO_MODEL).agent(True).speak(200).agent(False)
    assert talk.kinds()[-3:] == [Pause, AgentStopped, Resume]


def test_a_turn_does_not_begin_before_the_one_before_it_has_ended() -> None:
    turns = Turns(NO_MODEL)
    turns.frame(500, SPEECH, 100, False)
    turns.frame(540, SILENCE, 40, False)
    assert TurnEnded(600, 400, 500, "delay") in turns.tick(600, False)
    assert turns.frame(604, SPEECH, 20, False, onset_ms=250) == (SpeechStarted(604, 500, reopens=True),)
