"""The forecast of response latency."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.llm.llama.batching.latency_forecast import (
    MAX_WAIT_S,
    LlmLatencyForecast,
    MeasuredSteps,
    StepTimes,
    TurnPattern,
    forecast_llm_latency,
)

TURNS = TurnPattern(every_s=8.0, tokens_in=20, tokens_out=30, first_tokens=12, speech_s=3.2)
LAPTOP = StepTimes({64: MeasuredSteps({1: 1 / 45, 4: 4 / 62, 8: 8 / 68, 16: 16 / 76}, {8: 8 / 125, 64: 64 / 169})})
"""Steps of a model of 0.6 billion weights on two cores, as they were measured."""


def test_a_single_call_waits_for_prefill_and_the_first_sentence() -> None:
    run_alone = forecast_llm_latency(LAPTOP, 1, TURNS)
    assert run_alone.wait_s == pytest.approx(LAPTOP.prefill_s(20) + 11 * LAPTOP.decode_s(1), rel=0.15)
    assert run_alone.busy == pytest.approx((LAPTOP.prefill_s(20) + 29 * LAPTOP.decode_s(1)) / 8, rel=0.1)


def test_more_callers_wait_longer_and_keep_the_model_busier() -> None:
    told = [forecast_llm_latency(LAPTOP, calls, TURNS) for calls in (1, 4, 8, 16)]
    assert [each.wait_s for each in told] == sorted(each.wait_s for each in told)
    assert [each.busy for each in told] == sorted(each.busy for each in told)
    assert told[-1].busy > 0.95
    assert told[-1].wait_s > 3


def test_the_same_numbers_give_the_same_forecast() -> None:
    assert forecast_llm_latency(LAPTOP, 6, TURNS) == forecast_llm_latency(LAPTOP, 6, TURNS)


def test_other_work_on_the_machine_increases_the_wait() -> None:
    assert (
        forecast_llm_latency(LAPTOP, 4, TURNS, slowdown=1.5).wait_s
        > 1.3 * forecast_llm_latency(LAPTOP, 4, TURNS).wait_s
    )


def test_a_stall_within_a_response_counts_as_waiting() -> None:
    """Four tokens a second: the first sentence takes three seconds, and what follows is spoken faster than written."""
    slow = forecast_llm_latency(StepTimes({64: MeasuredSteps({1: 0.25}, {1: 0.25})}), 1, TURNS)
    reading_s, writing_s = 20 * 0.25, 29 * 0.25
    assert slow.wait_s == pytest.approx(reading_s + writing_s - TURNS.speech_s, rel=0.05)


def test_an_overloaded_machine_has_the_maximum_wait() -> None:
    assert forecast_llm_latency(StepTimes({64: MeasuredSteps({1: 1.0}, {1: 1.0})}), 8, TURNS) == LlmLatencyForecast(
        MAX_WAIT_S, 1.0
    )


def test_step_times_are_interpolated_between_measurements() -> None:
    times = StepTimes({64: MeasuredSteps({1: 0.02, 4: 0.05, 16: 0.11}, {64: 0.3})})
    assert [times.decode_s(calls) for calls in (1, 4, 16)] == [0.02, 0.05, 0.11]
    assert times.decode_s(10) == pytest.approx(0.08)
    assert times.decode_s(32) == pytest.approx(0.22)
    assert StepTimes({64: MeasuredSteps({4: 0.05}, {64: 0.3})}).decode_s(1) == 0.05
    assert times.prefill_s(128) == pytest.approx(0.6)


def test_step_times_are_monotonic_despite_disturbed_measurements() -> None:
    assert StepTimes({64: MeasuredSteps({1: 0.5, 4: 0.05}, {64: 0.3})}).decode_s(4) == 0.5
    disturbed = StepTimes({64: MeasuredSteps({1: 0.5}, {64: 0.3}), 320: MeasuredSteps({1: 0.4}, {64: 0.3})})
    assert disturbed.decode_s(1, 2048) == 0.5


def test_longer_contexts_make_steps_longer() -> None:
    times = StepTimes({64: MeasuredSteps({1: 0.02}, {64: 0.4}), 1024: MeasuredSteps({1: 0.03}, {64: 0.6})})
    assert times.decode_s(1, 64) == 0.02
    assert times.decode_s(1, 544) == pytest.approx(0.025)
    assert times.prefill_s(64, 1984) == pytest.approx(0.8)
    assert times.decode_s(1) == 0.02
    long = replace(TURNS, conversation_tokens=2000)
    assert forecast_llm_latency(times, 2, long).wait_s > 1.2 * forecast_llm_latency(times, 2, TURNS).wait_s
