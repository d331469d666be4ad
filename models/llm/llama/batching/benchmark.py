"""Measures how quick a language model is on this machine, before calls need it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from models.llm.llama.batching.latency_forecast import MeasuredSteps
from models.llm.llama.batching.scheduler import StepTimePredictor
from models.llm.llama.bindings import Chunk, Context

READ: Final = 64
"""Tokens of the prompt that is read."""
_CHUNK: Final = 16
"""Of one that is read beside those who speak."""
_HELD_TOKENS: Final = 320
"""Of a talk: llama.cpp compares each token with so many times 256."""
_TRIALS: Final = 3
_ENOUGH_S: Final = 1.0
"""When a trial took so long, it is not made again."""


@dataclass(frozen=True)
class LlmSpeed:
    """Tokens per second when talks have just begun: of a prompt alone, and written by so many calls together. `steps`:
    how long steps take, for each length of the talks in memory that was tried: the longer they are, the longer each
    token takes."""

    reads: float
    writes: Mapping[int, float]
    steps: Mapping[int, MeasuredSteps] = field(default_factory=dict)


def measure(context: Context, pace: StepTimePredictor, calls: tuple[int, ...] = (1, 4, 16)) -> LlmSpeed:
    """Fill an empty `context` with short talks, then with longer ones, and empty it again; `pace` learns from it.
    Counts of `calls` for which there are no sequences are left out. Some seconds for a model of 0.6 billion weights on
    two cores."""
    length = min(READ, context.batch_tokens)
    counts = [count for count in calls if count <= context.sequences]
    steps, held = {}, 0
    for held_tokens in (length, _HELD_TOKENS):
        if held_tokens + length > context.capacity:
            break
        while held < held_tokens:  # the first step makes ready what later ones find
            tokens = min(held_tokens - held, context.batch_tokens)
            context.evaluate([Chunk(0, held, [0] * tokens, True)])
            held += tokens
        for number in range(1, context.sequences):
            context.copy(0, number)
        context.evaluate([Chunk(0, held_tokens, [0], True)])  # makes the copies, too
        context.truncate(0, held_tokens)
        steps[held_tokens] = _steps(context, pace, counts, held_tokens)
    for number in range(context.sequences):
        context.truncate(number, 0)
    first = steps[length]
    reads = length / first.reads[length]
    return LlmSpeed(reads, {count: count / first.writes[count] for count in counts}, steps)


def _steps(context: Context, pace: StepTimePredictor, counts: list[int], held_tokens: int) -> MeasuredSteps:
    """The seconds of steps when calls hold `talk` tokens each. Those who speak are seldom next to each other."""
    chunks = sorted({min(tokens, context.batch_tokens) for tokens in (_CHUNK, READ)})
    writes = {}
    for count in counts:
        apart = 2 if 2 * count <= context.sequences + 1 else 1
        words = [Chunk(apart * number, held_tokens, [0], True) for number in range(count)]
        writes[count] = _best_s(context, words, pace)
    return MeasuredSteps(
        writes, {tokens: _best_s(context, [Chunk(0, held_tokens, [0] * tokens, True)], pace) for tokens in chunks}
    )


def _best_s(context: Context, chunks: list[Chunk], pace: StepTimePredictor) -> float:
    """The least that a step takes: what others did on the machine meanwhile is not the model's speed."""
    took = []
    for _ in range(_TRIALS):
        began = time.perf_counter()
        context.evaluate(chunks)
        took.append(time.perf_counter() - began)
        for chunk in chunks:
            context.truncate(chunk.sequence, chunk.at)
        pace.learn(len(chunks), len(chunks[0].tokens), took[-1])
        if sum(took) > _ENOUGH_S:
            break
    return min(took)
