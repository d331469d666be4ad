"""The measurement of a model's step times when it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from models.llm.llama.batching.engine import BatchEngine
from models.llm.llama.batching.scheduler import StepTimePredictor
from models.llm.llama.batching.speed_measurement import measure
from models.llm.llama.bindings import Chunk, LlamaContext, LlamaModel
from tests.models.llm.llama.conftest import run_alone, run_request


def test_the_speed_is_measured_for_counts_up_to_the_sequences(tiny: LlamaModel) -> None:
    context, pace = LlamaContext(tiny, sequences=4, context_length=512), StepTimePredictor(step_s=1.0, token_s=1.0)
    speed = measure(context, pace)
    context.close()
    assert list(speed.decode_tokens_per_s) == [1, 4]
    assert speed.prefill_tokens_per_s > speed.decode_tokens_per_s[1] > 0
    assert pace.step_s(1) < 1


def test_steps_are_measured_with_short_and_long_contexts(tiny: LlamaModel) -> None:
    context = LlamaContext(tiny, sequences=4, context_length=512)
    steps = measure(context, StepTimePredictor()).steps
    assert list(steps) == [64, 320]
    for there in steps.values():
        assert (list(there.decode_s), list(there.prefill_s)) == ([1, 4], [16, 64])
    context.close()


def test_a_small_context_is_measured_with_short_sequences_only(tiny: LlamaModel) -> None:
    context = LlamaContext(tiny, sequences=4, context_length=256)
    assert list(measure(context, StepTimePredictor()).steps) == [64]
    context.close()


def test_the_kv_cache_is_empty_after_the_measurement(tiny: LlamaModel) -> None:
    context = LlamaContext(tiny, sequences=4, context_length=512, kv_cache_f32=True)
    measure(context, StepTimePredictor())
    engine = BatchEngine(tiny, context)
    prompt = tiny.tokenize("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    assert run_request(engine, "a", prompt, 10).wait() == run_alone(tiny, prompt, 10)
    engine.close()


class FakeContext:
    """A context on a virtual clock: 0.01 s for a pass over the weights, 0.001 s for a token, and 0.5 s for a copy, in
    the next step."""

    sequences, context_length, batch_tokens = 16, 1024, 512

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


def test_copies_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generating calls are measured in non-adjacent sequences if possible: a pass for each."""
    context, pace = FakeContext(), StepTimePredictor()
    monkeypatch.setattr("models.llm.llama.batching.speed_measurement.time", context)
    steps = measure(context, pace).steps  # type: ignore[arg-type]
    for there in steps.values():
        assert there.decode_s == pytest.approx({1: 0.011, 4: 0.044, 16: 0.026})
        assert there.prefill_s == pytest.approx({16: 0.026, 64: 0.074})
    assert pace.step_s(4) < 0.06
    assert pace.token_s == pytest.approx(0.001, rel=0.1)
