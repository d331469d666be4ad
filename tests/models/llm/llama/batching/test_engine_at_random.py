"""Random arrivals, ends and cancellations of requests, in a KV cache that is too small for all of them."""

from __future__ import annotations

import random

import pytest

from models.llm.llama.batching.scheduler import Priority, StepLimits
from models.llm.llama.bindings import LlamaModel
from models.llm.llama.output.sampling import Sampling
from tests.models.llm.llama.conftest import AnswerCollector, MakeEngine, run_alone, run_request

PRIORITIES = [Priority.LIVE] * 4 + [Priority.PREFILL, Priority.AFTER_CALL]


@pytest.mark.parametrize("seed", range(3))
def test_other_requests_never_change_a_response(
    tiny: LlamaModel, make_engine: MakeEngine, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beginnings are copied, cut back, evicted and read in pieces, and talks of different lengths are computed apart.
    At the end nothing is left in the making."""
    monkeypatch.setattr("models.llm.llama.batching.engine._LENGTH_GROUP_TOKENS", 32)
    rng = random.Random(seed)
    chunk = rng.randint(1, 40)
    limits = StepLimits(step_s=1e-9, turn_step_s=1e-9, idle_step_s=1e-9, least_chunk=chunk, idle_chunk=chunk)
    engine = make_engine(sequences=rng.randint(2, 5), context_length=256 * rng.randint(2, 3), limits=limits)
    beginnings = [[rng.randrange(5, 300) for _ in range(length)] for length in (0, 40, 120)]
    asked: list[tuple[list[int], int, Sampling, AnswerCollector]] = []
    for number in range(60):
        length = rng.randint(1, 30)
        prompt = [*rng.choice(beginnings), *(rng.randrange(5, 300) for _ in range(length))]
        most, sampling = rng.randint(0, 12), Sampling(temperature=rng.choice([0, 0.9]), seed=number)
        priority = rng.choice(PRIORITIES)
        most = 0 if priority is Priority.PREFILL else max(most, 1)
        generated = run_request(engine, f"call {rng.randint(0, 7)}", prompt, most, sampling, priority=priority)
        if rng.random() < 0.3:
            generated.cancel()
        elif most:
            asked.append((prompt, most, sampling, generated))
        if rng.random() < 0.3 and asked:
            asked[-1][3].wait()
    for prompt, most, sampling, generated in asked:
        assert generated.wait() == run_alone(tiny, prompt, most, sampling)
    run_request(engine, "last", [5, 6], 1).wait()
    assert not engine._active_requests
    assert engine._kv_cache.idle == len(engine._kv_cache._sequences)
