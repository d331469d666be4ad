"""How quick a model is on this machine, measured before calls need it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from models.llama.library import Chunk, Context
from models.llama.schedule import Pace

_READ: Final = 64
_TRIALS: Final = 3


@dataclass(frozen=True)
class Speed:
    """Tokens per second: of a prompt alone, and written by so many calls together."""

    reads: float
    writes: Mapping[int, float]


def measure(context: Context, pace: Pace, calls: tuple[int, ...] = (1, 4, 16)) -> Speed:
    """Fill an empty `context` a little, and empty it again; `pace` learns from it. Counts of `calls` for which there
    are no sequences are left out. A second or two for a model of 0.6 billion weights on two cores."""
    length = min(_READ, context.batch_tokens)
    context.evaluate([Chunk(0, 0, [0] * length, True)])  # the first step makes ready what later ones find
    read_s = _best_s(context, [Chunk(0, length, [0] * length, True)], pace)
    writes = {}
    for count in calls:
        if count <= context.sequences:
            chunks = [Chunk(number, 0, [0], True) for number in range(count)]
            for number in range(count):
                context.keep(number, 0)
            writes[count] = count / _best_s(context, chunks, pace)
    for number in range(context.sequences):
        context.keep(number, 0)
    return Speed(length / read_s, writes)


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
    return min(took)
