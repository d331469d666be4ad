"""How many calls a machine is said to hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.llm.llama.batching.latency_forecast import ENDLESS_S, MeasuredSteps, StepTimes
from models.loading.capacity import (
    CallProfile,
    Capacity,
    EotCost,
    LlmCost,
    ModelCosts,
    SttCost,
    TtsCost,
    capacities,
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


def held(speeds: ModelCosts, cores: float, within_s: float, most: int = 250, talk: CallProfile = TALK) -> Capacity:
    return capacities(speeds, cores, most, talk, [within_s])[0]


def test_models_that_cost_nothing_leave_the_settings_ceiling() -> None:
    assert held(ModelCosts(), 2, 0.5) == Capacity(0.5, 250, "max_calls")
    assert ModelCosts().cost_nothing
    assert not BOX.cost_nothing


def test_without_models_lines_alone_take_the_cores() -> None:
    assert held(ModelCosts(), 1, 0.5, most=900) == Capacity(0.5, 170, "cores")


def test_what_is_heard_judged_and_spoken_bounds_the_calls_of_a_core() -> None:
    each = 0.4 * 0.13 + 2 / 8 * 0.046 + 0.4 * 0.04 + 0.005
    there = held(BOX, 1, 1.0)
    assert there.bound == "cores"
    assert there.calls == pytest.approx(0.85 / each, abs=1)


def test_more_cores_hold_more_calls() -> None:
    box = replace(BOX, tts=TtsCost("voice", 0.04, threads=8))
    calls = [held(box, cores, 1.0).calls for cores in (0.5, 1, 2, 4, 8)]
    assert calls == sorted(calls)
    assert calls[-1] >= 6 * calls[1]


def test_more_calls_are_held_by_who_may_wait_longer() -> None:
    speeds = replace(BOX, llm=SMALL)
    calls = [each.calls for each in capacities(speeds, 2, 250, TALK, [0.3, 0.7, 1.0, 2.0])]
    assert calls == sorted(calls)
    assert calls[0] == 0 < calls[1] < calls[3]


def test_a_language_model_bounds_the_calls_before_the_cores_do() -> None:
    there = held(replace(BOX, llm=SMALL), 2, 1.0)
    assert there.bound == "language model"
    assert there.calls < held(BOX, 2, 1.0).calls


def test_no_more_calls_are_promised_than_the_model_remembers() -> None:
    quick = LlmCost("quick", StepTimes({64: MeasuredSteps({1: 0.001}, {64: 0.01})}), conversations=5)
    assert held(ModelCosts(llm=quick), 8, 1.0) == Capacity(1.0, 5, "memory")


def test_the_answer_begins_after_the_last_words_are_heard_the_first_written_and_the_first_spoken() -> None:
    alone = forecast_latency(replace(BOX, llm=SMALL), 64, 1, TALK)
    reads_and_writes_s = SMALL.steps.reads(20) + 11 * SMALL.steps.writes(1)
    assert alone.wait_s == pytest.approx(0.3 * 0.13 + reads_and_writes_s + 1.28 * 0.04, rel=0.15)


def test_callers_wait_longer_the_busier_the_cores_are() -> None:
    waits = [forecast_latency(BOX, 2, calls, TALK).wait_s for calls in (1, 8, 16, 20, 22)]
    assert waits == sorted(waits)
    assert waits[-1] > 2 * waits[0]
    assert forecast_latency(BOX, 2, 40, TALK).wait_s == ENDLESS_S


def test_a_voice_that_speaks_for_one_call_at_a_time_bounds_them_whatever_the_cores() -> None:
    slow = ModelCosts(tts=TtsCost("voice", 0.5, threads=1))
    assert held(slow, 16, 2.0).calls < 5
    assert held(slow, 16, 2.0).bound == "voice"
    assert held(replace(slow, tts=TtsCost("voice", 0.5, threads=16)), 16, 2.0).calls > 40


def test_what_is_cheaper_together_counts_so_only_when_so_many_speak() -> None:
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


def test_those_who_speak_are_spread_over_the_threads_that_hear() -> None:
    ears = SttCost("ears", {1: 0.2, 4: 0.1, 16: 0.05}, threads=4)
    assert [ears.factor(speaking) for speaking in (1, 4, 15, 16, 63, 64)] == [0.2, 0.2, 0.2, 0.1, 0.1, 0.05]


def test_a_second_pass_takes_cores_and_its_time_is_on_the_way_to_the_answer() -> None:
    ears = ModelCosts(stt=SttCost("ears", {1: 0.03}, threads=1))
    twice = replace(ears, stt_second=SttCost("better ears", {1: 0.13}, threads=1))
    assert not ModelCosts(stt_second=twice.stt_second).cost_nothing
    assert forecast_latency(twice, 64, 1, TALK).wait_s == pytest.approx(
        forecast_latency(ears, 64, 1, TALK).wait_s + 3.2 * 0.13, rel=0.05
    )
    assert forecast_latency(twice, 2, 5, TALK).busy == pytest.approx(
        forecast_latency(ears, 2, 5, TALK).busy + 5 * 0.4 * 0.13 / 2
    )
    assert held(twice, 2, 1.0).calls < held(ears, 2, 1.0).calls / 2
    assert held(twice, 2, 1.0).bound == "second pass"


def test_less_than_a_core_works_more_slowly() -> None:
    assert forecast_latency(BOX, 0.5, 1, TALK).wait_s > 1.9 * forecast_latency(BOX, 1, 1, TALK).wait_s
