"""A model's speed, measured at its start."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from models.llm.llama.batching.benchmark import measure
from models.llm.llama.batching.engine import BatchEngine
from models.llm.llama.batching.scheduler import StepTimePredictor
from models.llm.llama.bindings import Chunk, Context, Model
from tests.models.llm.llama.conftest import alone, ask


def test_the_speed_is_measured_for_as_many_calls_as_there_are_places(tiny: Model) -> None:
    context, pace = Context(tiny, sequences=4, capacity=512), StepTimePredictor(step_s=1.0, token_s=1.0)
    speed = measure(context, pace)
    context.close()
    assert list(speed.writes) == [1, 4]
    assert speed.reads > speed.writes[1] > 0
    assert pace.step_s(1) < 1


def test_steps_are_measured_with_short_talks_and_with_longer_ones(tiny: Model) -> None:
    context = Context(tiny, sequences=4, capacity=512)
    steps = measure(context, StepTimePredictor()).steps
    assert list(steps) == [64, 320]
    for there in steps.values():
        assert (list(there.writes), list(there.reads)) == ([1, 4], [16, 64])
    context.close()


def test_a_memory_that_is_too_small_for_a_longer_talk_is_measured_with_short_ones(tiny: Model) -> None:
    context = Context(tiny, sequences=4, capacity=256)
    assert list(measure(context, StepTimePredictor()).steps) == [64]
    context.close()


def test_nothing_of_the_measurement_stays_in_memory(tiny: Model) -> None:
    context = Context(tiny, sequences=4, capacity=512, exact=True)
    measure(context, StepTimePredictor())
    engine = BatchEngine(tiny, context)
    prompt = tiny.tokens("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    assert ask(engine, "a", prompt, 10).wait() == alone(tiny, prompt, 10)
    engine.close()


class FakeContext:
    """Takes 0.01 s for a pass over the weights, 0.001 s for a token, and 0.5 s for a copy, which it makes with the
    next step. Its clock is virtual."""

    sequences, capacity, batch_tokens = 16, 1024, 512

    def __init__(self) -> None:
        self.now_s, self.pending = 0.0, 0

    def perf_counter(self) -> float:
        return self.now_s

    def evaluate(self, chunks: Sequence[Chunk]) -> list[int]:
        passes = 1 + sum(after.sequence != before.sequence + 1 for before, after in pairwise(chunks))
        self.now_s += 0.01 * passes + 0.001 * sum(len(chunk.tokens) for chunk in chunks) + 0.5 * self.pending
        self.pending = 0
        return [0] * len(chunks)

    def copy(self, source: int, target: int) -> None:
        self.pending += 1

    def truncate(self, sequence: int, tokens: int) -> bool:
        return True


def test_copies_are_no_part_of_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that speak are taken to be apart, where there is room: a pass for each."""
    context, pace = FakeContext(), StepTimePredictor()
    monkeypatch.setattr("models.llm.llama.batching.benchmark.time", context)
    steps = measure(context, pace).steps  # type: ignore[arg-type]
    for there in steps.values():
        assert there.writes == pytest.approx({1: 0.011, 4: 0.044, 16: 0.026})
        assert there.reads == pytest.approx({16: 0.026, 64: 0.074})
    assert pace.step_s(4) < 0.06
    assert pace.token_s == pytest.approx(0.001, rel=0.1)
