"""How quick a model is on this machine, measured before calls need it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from models.llama.library import Chunk, Context
from models.llama.schedule import Pace

READ: Final = 64
"""Tokens of the prompt that is read."""
_TRIALS: Final = 3
_ENOUGH_S: Final = 1.0
"""When a trial took so long, it is not made again."""


@dataclass(frozen=True)
class Speed:
    """Tokens per second with an empty memory: of a prompt alone, and written by so many calls together. `steps`: the
    seconds of a step by the tokens in it, for each number of cells in use that was tried: the more the model has in
    memory, the longer each token takes."""

    reads: float
    writes: Mapping[int, float]
    steps: Mapping[int, Mapping[int, float]] = field(default_factory=dict)


def measure(context: Context, pace: Pace, calls: tuple[int, ...] = (1, 4, 16)) -> Speed:
    """Fill an empty `context` a little, then with as many talks as it has sequences, and empty it again; `pace` learns
    from it. Counts of `calls` for which there are no sequences are left out. Some seconds for a model of 0.6 billion
    weights on two cores."""
    length = min(READ, context.batch_tokens)
    counts = [count for count in calls if count <= context.sequences]
    beginning = [Chunk(0, 0, [0] * length, True)]
    context.evaluate(beginning)  # the first step makes ready what later ones find
    steps = {length: _steps(context, pace, counts, length, 0)}
    filled = min(context.sequences, context.cells // length - 2)
    if filled > 1:
        context.keep(0, 0)
        context.evaluate(beginning)
        for number in range(1, filled):
            context.duplicate(0, number)
        steps[filled * length] = _steps(context, pace, [count for count in counts if count <= filled], length, length)
    for number in range(context.sequences):
        context.keep(number, 0)
    empty = steps[length]
    return Speed(length / empty[length], {count: count / empty[count] for count in counts}, steps)


def _steps(context: Context, pace: Pace, counts: list[int], length: int, at: int) -> dict[int, float]:
    """The seconds of steps that write for so many calls, each of which holds `at` tokens, and of one that reads."""
    found = {length: _best_s(context, [Chunk(0, max(at, length), [0] * length, True)], pace)}
    for count in counts:
        for number in range(count):
            context.keep(number, at)
        found[count] = _best_s(context, [Chunk(number, at, [0], True) for number in range(count)], pace)
    return found


def _best_s(context: Context, chunks: list[Chunk], pace: Pace) -> float:
    """The least that a step takes: what others did on the machine meanwhile is not the model's speed."""
    took = []
    for _ in range(_TRIALS):
        for chunk in chunks:
            context.keep(chunk.sequence, chunk.at)
        began = time.perf_counter()
        context.evaluate(chunks)
        took.append(time.perf_counter() - began)
        pace.learn(sum(len(chunk.tokens) for chunk in chunks), took[-1])
        if sum(took) > _ENOUGH_S:
            break
    return min(took)
