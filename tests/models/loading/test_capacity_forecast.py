"""The forecast of a machine's capacity in calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.llm.llama.batching.latency_forecast import MAX_WAIT_S, MeasuredSteps, StepTimes
from models.loading.capacity_forecast import (
    CallProfile,
    Capacity,
    EotCost,
    LlmCost,
    ModelCosts,
    SttCost,
    TtsCost,
    forecast_capacities,
    forecast_latency,
)

TALK = CallProfile()
BOX = ModelCosts(
    SttCost("ears", {1: 0.13}, threads=64), EotCost("judge", 0.046), None, TtsCost("voice", 0.04, threads=1)
)
"""Like the models that come with the packages, on one core of this kind."""
SMALL = LlmCost(
    "small",
    StepTimes({64: MeasuredSteps({1: 1 / 45, 4: 4 / 62, 16: 16 / 76}, {8: 8 / 125, 64: 64 / 169})}),
    conversations=16,
)
"""Like a model of 0.6 billion weights on two cores."""


def capacity_of(
    speeds: ModelCosts, cores: float, within_s: float, most: int = 250, talk: CallProfile = TALK
) -> Capacity:
    return forecast_capacities(speeds, cores, most, talk, [within_s])[0]


def test_free_models_leave_max_calls_as_the_limit() -> None:
    assert capacity_of(ModelCosts(), 2, 0.5) == Capacity(0.5, 250, "max_calls")
    assert ModelCosts().is_free
    assert not BOX.is_free


def test_without_models_only_calls_take_cores() -> None:
    assert capacity_of(ModelCosts(), 1, 0.5, most=900) == Capacity(0.5, 170, "cores")


def test_stt_end_of_turn_and_tts_limit_the_calls_per_core() -> None:
    each = 0.4 * 0.13 + 2 / 8 * 0.046 + 0.4 * 0.04 + 0.005
    there = capacity_of(BOX, 1, 1.0)
    assert there.limited_by == "cores"
    assert there.calls == pytest.approx(0.85 / each, abs=1)


def test_more_cores_hold_more_calls() -> None:
    box = replace(BOX, tts=TtsCost("voice", 0.04, threads=8))
    calls = [capacity_of(box, cores, 1.0).calls for cores in (0.5, 1, 2, 4, 8)]
    assert calls == sorted(calls)
    assert calls[-1] >= 6 * calls[1]


def test_a_longer_latency_allows_more_calls() -> None:
    speeds = replace(BOX, llm=SMALL)
    calls = [each.calls for each in forecast_capacities(speeds, 2, 250, TALK, [0.3, 0.7, 1.0, 2.0])]
    assert calls == sorted(calls)
    assert calls[0] == 0 < calls[1] < calls[3]


def test_a_language_model_limits_the_calls_before_the_cores_do() -> None:
    there = capacity_of(replace(BOX, llm=SMALL), 2, 1.0)
    assert there.limited_by == "language model"
    assert there.calls < capacity_of(BOX, 2, 1.0).calls


def test_the_capacity_is_limited_by_the_conversations_in_the_kv_cache() -> None:
    quick = LlmCost("quick", StepTimes({64: MeasuredSteps({1: 0.001}, {64: 0.01})}), conversations=5)
    assert capacity_of(ModelCosts(llm=quick), 8, 1.0) == Capacity(1.0, 5, "memory")


def test_the_latency_is_the_sum_of_stt_llm_and_tts() -> None:
    alone = forecast_latency(replace(BOX, llm=SMALL), 64, 1, TALK)
    reads_and_writes_s = SMALL.steps.prefill_s(20) + 11 * SMALL.steps.decode_s(1)
    assert alone.wait_s == pytest.approx(0.3 * 0.13 + reads_and_writes_s + 1.28 * 0.04, rel=0.15)


def test_busier_cores_increase_the_latency() -> None:
    waits = [forecast_latency(BOX, 2, calls, TALK).wait_s for calls in (1, 8, 16, 20, 22)]
    assert waits == sorted(waits)
    assert waits[-1] > 2 * waits[0]
    assert forecast_latency(BOX, 2, 40, TALK).wait_s == MAX_WAIT_S


def test_a_single_threaded_voice_limits_the_calls_regardless_of_cores() -> None:
    slow = ModelCosts(tts=TtsCost("voice", 0.5, threads=1))
    assert capacity_of(slow, 16, 2.0).calls < 5
    assert capacity_of(slow, 16, 2.0).limited_by == "voice"
    assert capacity_of(replace(slow, tts=TtsCost("voice", 0.5, threads=16)), 16, 2.0).calls > 40


def test_a_batch_factor_counts_only_for_batches_of_that_size() -> None:
    ears = SttCost("ears", {1: 0.2, 4: 0.1, 16: 0.05}, threads=1)
    assert [ears.factor(speaking) for speaking in (0.4, 1, 3.9, 4, 15, 16, 100)] == [
        0.2,
        0.2,
        0.2,
        0.1,
        0.1,
        0.05,
        0.05,
    ]


def test_streams_are_spread_over_the_decoding_threads() -> None:
    ears = SttCost("ears", {1: 0.2, 4: 0.1, 16: 0.05}, threads=4)
    assert [ears.factor(speaking) for speaking in (1, 4, 15, 16, 63, 64)] == [0.2, 0.2, 0.2, 0.1, 0.1, 0.05]


def test_a_second_pass_takes_cores_and_adds_latency() -> None:
    ears = ModelCosts(stt=SttCost("ears", {1: 0.03}, threads=1))
    twice = replace(ears, stt_second=SttCost("better ears", {1: 0.13}, threads=1))
    assert not ModelCosts(stt_second=twice.stt_second).is_free
    assert forecast_latency(twice, 64, 1, TALK).wait_s == pytest.approx(
        forecast_latency(ears, 64, 1, TALK).wait_s + 3.2 * 0.13, rel=0.05
    )
    assert forecast_latency(twice, 2, 5, TALK).busy == pytest.approx(
        forecast_latency(ears, 2, 5, TALK).busy + 5 * 0.4 * 0.13 / 2
    )
    assert capacity_of(twice, 2, 1.0).calls < capacity_of(ears, 2, 1.0).calls / 2
    assert capacity_of(twice, 2, 1.0).limited_by == "second pass"


def test_less_than_a_core_takes_longer() -> None:
    assert forecast_latency(BOX, 0.5, 1, TALK).wait_s > 1.9 * forecast_latency(BOX, 1, 1, TALK).wait_s
