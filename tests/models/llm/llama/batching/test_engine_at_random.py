"""Calls that come, go and are given up by chance, in a memory that is too small for all of them."""

from __future__ import annotations

import random

import pytest

from models.llm.llama.batching.scheduler import Priority, StepLimits
from models.llm.llama.bindings import Model
from models.llm.llama.output.sampling import Sampling
from tests.models.llm.llama.conftest import AnswerCollector, MakeEngine, alone, ask

PRIORITIES = [Priority.LIVE] * 4 + [Priority.PREFILL, Priority.AFTER_CALL]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_to_others_an_answer_is_what_it_would_be_alone(
    tiny: Model, make_engine: MakeEngine, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beginnings are copied, cut back, evicted and read in pieces, and talks of different lengths are computed apart.
    At the end nothing is left in the making."""
    monkeypatch.setattr("models.llm.llama.batching.engine._SHORT", 32)
    chance = random.Random(seed)
    chunk = chance.randint(1, 40)
    bounds = StepLimits(step_s=1e-9, turn_step_s=1e-9, idle_step_s=1e-9, least_chunk=chunk, idle_chunk=chunk)
    engine = make_engine(sequences=chance.randint(2, 5), capacity=256 * chance.randint(2, 3), bounds=bounds)
    beginnings = [[chance.randrange(5, 300) for _ in range(length)] for length in (0, 40, 120)]
    asked: list[tuple[list[int], int, Sampling, AnswerCollector]] = []
    for number in range(60):
        length = chance.randint(1, 30)
        prompt = [*chance.choice(beginnings), *(chance.randrange(5, 300) for _ in range(length))]
        most, sampling = chance.randint(0, 12), Sampling(temperature=chance.choice([0, 0.9]), seed=number)
        priority = chance.choice(PRIORITIES)
        most = 0 if priority is Priority.PREFILL else max(most, 1)
        heard = ask(engine, f"call {chance.randint(0, 7)}", prompt, most, sampling, priority=priority)
        if chance.random() < 0.3:
            heard.cancel()
        elif most:
            asked.append((prompt, most, sampling, heard))
        if chance.random() < 0.3 and asked:
            asked[-1][3].wait()
    for prompt, most, sampling, heard in asked:
        assert heard.wait() == alone(tiny, prompt, most, sampling)
    ask(engine, "last", [5, 6], 1).wait()
    assert not engine._answers
    assert engine._contexts.idle == len(engine._contexts._sequences)
