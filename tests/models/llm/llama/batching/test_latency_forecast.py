"""What is foretold of callers' waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.llm.llama.batching.latency_forecast import (
    ENDLESS_S,
    LlmLatencyForecast,
    MeasuredSteps,
    StepTimes,
    TurnPattern,
    forecast,
)

TURNS = TurnPattern(every_s=8.0, tokens_in=20, tokens_out=30, first_tokens=12, speech_s=3.2)
LAPTOP = StepTimes({64: MeasuredSteps({1: 1 / 45, 4: 4 / 62, 8: 8 / 68, 16: 16 / 76}, {8: 8 / 125, 64: 64 / 169})})
"""Steps of a model of 0.6 billion weights on two cores, as they were measured."""


def test_a_lone_caller_waits_for_its_words_to_be_read_and_a_sentence_to_be_written() -> None:
    alone = forecast(LAPTOP, 1, TURNS)
    assert alone.wait_s == pytest.approx(LAPTOP.reads(20) + 11 * LAPTOP.writes(1), rel=0.15)
    assert alone.busy == pytest.approx((LAPTOP.reads(20) + 29 * LAPTOP.writes(1)) / 8, rel=0.1)


def test_more_callers_wait_longer_and_keep_the_model_busier() -> None:
    told = [forecast(LAPTOP, calls, TURNS) for calls in (1, 4, 8, 16)]
    assert [each.wait_s for each in told] == sorted(each.wait_s for each in told)
    assert [each.busy for each in told] == sorted(each.busy for each in told)
    assert told[-1].busy > 0.95
    assert told[-1].wait_s > 3


def test_the_same_numbers_give_the_same_forecast() -> None:
    assert forecast(LAPTOP, 6, TURNS) == forecast(LAPTOP, 6, TURNS)


def test_work_beside_the_model_makes_callers_wait() -> None:
    assert forecast(LAPTOP, 4, TURNS, slowed=1.5).wait_s > 1.3 * forecast(LAPTOP, 4, TURNS).wait_s


def test_a_voice_that_runs_out_of_words_counts_as_waiting() -> None:
    """Four tokens a second: the first sentence takes three seconds, and what follows is spoken faster than written."""
    slow = forecast(StepTimes({64: MeasuredSteps({1: 0.25}, {1: 0.25})}), 1, TURNS)
    reading_s, writing_s = 20 * 0.25, 29 * 0.25
    assert slow.wait_s == pytest.approx(reading_s + writing_s - TURNS.speech_s, rel=0.05)


def test_a_machine_that_falls_ever_further_behind_is_given_up() -> None:
    assert forecast(StepTimes({64: MeasuredSteps({1: 1.0}, {1: 1.0})}), 8, TURNS) == LlmLatencyForecast(ENDLESS_S, 1.0)


def test_steps_take_what_was_measured_and_what_lies_between() -> None:
    times = StepTimes({64: MeasuredSteps({1: 0.02, 4: 0.05, 16: 0.11}, {64: 0.3})})
    assert [times.writes(calls) for calls in (1, 4, 16)] == [0.02, 0.05, 0.11]
    assert times.writes(10) == pytest.approx(0.08)
    assert times.writes(32) == pytest.approx(0.22)
    assert StepTimes({64: MeasuredSteps({4: 0.05}, {64: 0.3})}).writes(1) == 0.05
    assert times.reads(128) == pytest.approx(0.6)


def test_a_measurement_that_was_disturbed_does_not_make_more_tokens_cheaper() -> None:
    assert StepTimes({64: MeasuredSteps({1: 0.5, 4: 0.05}, {64: 0.3})}).writes(4) == 0.5
    disturbed = StepTimes({64: MeasuredSteps({1: 0.5}, {64: 0.3}), 320: MeasuredSteps({1: 0.4}, {64: 0.3})})
    assert disturbed.writes(1, 2048) == 0.5


def test_longer_talks_make_steps_longer() -> None:
    times = StepTimes({64: MeasuredSteps({1: 0.02}, {64: 0.4}), 1024: MeasuredSteps({1: 0.03}, {64: 0.6})})
    assert times.writes(1, 64) == 0.02
    assert times.writes(1, 544) == pytest.approx(0.025)
    assert times.reads(64, 1984) == pytest.approx(0.8)
    assert times.writes(1) == 0.02
    long = replace(TURNS, conversation_tokens=2000)
    assert forecast(times, 2, long).wait_s > 1.2 * forecast(times, 2, TURNS).wait_s
