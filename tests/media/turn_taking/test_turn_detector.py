"""The effect of every turn-taking setting, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from media.turn_taking.events import (
    AgentStopped,
    PlayoutPaused,
    SpeculativeTurnEnd,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnEnded,
    TurnEvent,
)
from media.turn_taking.settings import TurnSettings
from tests.media.turn_taking.turn_simulation import NO_MODEL, SimulatedCall


@dataclass(frozen=True)
class Effect:
    """The effect of one setting: `play` is a conversation, `seen` the event whose times (ms) depend on the setting,
    `expected` those times for some of its values. `eot` is the end-of-turn model's answer; None: there is no model."""

    setting: str
    play: Callable[[SimulatedCall], SimulatedCall]
    seen: type[TurnEvent]
    expected: Mapping[int | float | None, list[float]]
    eot: float | None = None


EFFECTS = [
    Effect(
        "turn_endpoint_delay",
        lambda call: call.speak(500).pass_ms(2500),
        TurnEnded,
        {50: [550], 100: [600], None: [600], 2000: [2500]},
    ),
    Effect(
        "min_turn_duration",
        lambda call: call.speak(40).pass_ms(1000).speak(200).pass_ms(1000),
        TurnEnded,
        {0: [140, 1340], 50: [1340], None: [1340], 200: [1340], 210: []},
    ),
    Effect(
        "min_interruption_duration",
        lambda call: call.agent(True).pass_ms(1000).speak(600),
        PlayoutPaused,
        {0: [1010], 100: [1100], None: [1100], 500: [1500], 700: []},
    ),
    Effect(
        "frame_activation_threshold",
        lambda call: call.pass_ms(300, 0.3).pass_ms(500).pass_ms(300, 0.5).pass_ms(500),
        SpeechStarted,
        {0.3: [10, 810], 0.35: [810], None: [810], 0.5: [810], 0.6: []},
    ),
    Effect(
        "post_speech_cooldown",
        lambda call: call.agent(True).pass_ms(100).agent(False).pass_ms(50).speak(300).pass_ms(1000),
        TurnEnded,
        {0: [550], 350: [550], 400: [], None: [], 5000: []},
    ),
    Effect(
        "ultravad_eot_threshold",
        lambda call: call.speak(500).pass_ms(4000),
        TurnEnded,
        {None: [600], 0.1: [600], 0.5: [600], 0.6: [3500]},
        eot=0.5,
    ),
    Effect(
        "speculative_silence_ms",
        lambda call: call.speak(500).pass_ms(1000),
        SpeculativeTurnEnd,
        {None: [], 0: [510], 150: [650], 800: [1300], 2000: []},
        eot=0.0,
    ),
    Effect(
        "fallback_silence_ms",
        lambda call: call.speak(500).pass_ms(5000),
        TurnEnded,
        {0: [600], 1200: [1700], 3000: [3500], None: [3500], 10000: []},
        eot=0.0,
    ),
]


@pytest.mark.parametrize(
    ("effect", "value"),
    [pytest.param(effect, value, id=f"{effect.setting}={value}") for effect in EFFECTS for value in effect.expected],
)
def test_each_setting_has_its_effect(effect: Effect, value: float | None) -> None:
    threshold = 0.1 if effect.eot is not None else None
    settings: dict[str, Any] = {"ultravad_eot_threshold": threshold, effect.setting: value}
    call = effect.play(SimulatedCall(TurnSettings(**settings), eot=effect.eot))
    assert call.at(effect.seen) == effect.expected[value]


def test_the_table_of_effects_has_every_setting() -> None:
    assert {effect.setting for effect in EFFECTS} == {field.name for field in fields(TurnSettings)}


def test_a_turn_ends_at_turn_endpoint_delay_when_no_model_is_asked() -> None:
    call = SimulatedCall(replace(NO_MODEL, turn_endpoint_delay=300)).pass_ms(100).speak(500).pass_ms(290)
    assert call.kinds() == [SpeechStarted]
    call.pass_ms(10)
    assert call.of(SpeechStarted) == [SpeechStarted(at_ms=110, speech_start_ms=100)]
    assert call.of(SpeechStopped) == [SpeechStopped(at_ms=900, speech_end_ms=600)]
    assert call.of(TurnEnded) == [TurnEnded(at_ms=900, speech_start_ms=100, speech_end_ms=600, reason="delay")]


def test_speech_that_goes_on_before_the_delay_starts_the_silence_again() -> None:
    call = SimulatedCall(replace(NO_MODEL, turn_endpoint_delay=300)).speak(300).pass_ms(290).speak(10).pass_ms(290)
    assert call.kinds() == [SpeechStarted]
    assert call.pass_ms(10).of(TurnEnded)[0].speech_start_ms == 0


@pytest.mark.parametrize(("spoken", "takes_turn"), [(190, False), (200, True)])
def test_a_turn_needs_its_minimum_of_speech(spoken: int, takes_turn: bool) -> None:
    call = SimulatedCall(replace(NO_MODEL, min_turn_duration=200)).speak(spoken).pass_ms(500)
    assert len(call.of(TurnEnded)) == takes_turn
    assert [event.reason for event in call.of(TurnDropped)] == ([] if takes_turn else ["short"])


def test_pauses_within_a_turn_are_not_speech_of_it() -> None:
    call = SimulatedCall(replace(NO_MODEL, min_turn_duration=200)).speak(90).pass_ms(80).speak(90).pass_ms(500)
    assert [event.reason for event in call.of(TurnDropped)] == ["short"]


def test_speech_that_outlasts_an_uninterruptible_message_counts_from_its_beginning() -> None:
    call = SimulatedCall(replace(NO_MODEL, post_speech_cooldown=200))
    call.set_uninterruptible(True)
    call.agent(True).speak(500).agent(False).speak(300).pass_ms(200)
    assert call.of(TurnEnded) == [TurnEnded(900, 0, 800, "delay")]


def test_speech_that_begins_and_ends_inside_the_cooldown_is_dropped() -> None:
    call = SimulatedCall(replace(NO_MODEL, post_speech_cooldown=400)).agent(True).pass_ms(100).agent(False)
    call.pass_ms(50).speak(300).pass_ms(1000)
    assert [event.reason for event in call.of(TurnDropped)] == ["cooldown"]
    assert call.of(TurnEnded) == []


def test_speech_that_outlasts_the_cooldown_counts_from_its_true_beginning() -> None:
    call = SimulatedCall(replace(NO_MODEL, post_speech_cooldown=400)).agent(True).pass_ms(100).agent(False)
    call.pass_ms(50).speak(400).pass_ms(500)
    assert call.of(TurnEnded) == [TurnEnded(650, 150, 550, "delay")]


def test_speech_after_the_cooldown_is_an_ordinary_turn() -> None:
    call = SimulatedCall(replace(NO_MODEL, post_speech_cooldown=0)).agent(True).pass_ms(100).agent(False)
    assert len(call.pass_ms(10).speak(100).pass_ms(200).of(TurnEnded)) == 1
    assert [event.at_ms for event in call.of(AgentStopped)] == [100]


def test_null_means_the_default_except_where_it_means_off() -> None:
    empty = TurnSettings(None, None, None, None, None, None, None, None)
    assert empty.resolved() == TurnSettings(ultravad_eot_threshold=None, speculative_silence_ms=None)
