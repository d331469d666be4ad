"""Measures a language model's step times on this machine when it is loaded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from models.llm.llama.batching.latency_forecast import MeasuredSteps
from models.llm.llama.batching.scheduler import StepTimePredictor
from models.llm.llama.bindings import Chunk, LlamaContext

PROMPT_TOKENS: Final = 64
"""Tokens of the measured prompt."""
_SLICE_TOKENS: Final = 16
"""Tokens of a prompt slice beside generating sequences."""
_LONG_CONTEXT_TOKENS: Final = 320
"""Cached tokens of the second measurement: llama.cpp attends to a multiple of 256 cells."""
_REPETITIONS: Final = 3
_MAX_REPEATED_S: Final = 1.0
"""Seconds of all repetitions after which none is added."""


@dataclass(frozen=True)
class LlmSpeed:
    """Tokens per second with short contexts: `prefill_tokens_per_s` of a prompt alone, `decode_tokens_per_s` by number
    of generating calls. `steps`: step times by number of cached tokens, because longer contexts slow each token
    down."""

    prefill_tokens_per_s: float
    decode_tokens_per_s: Mapping[int, float]
    steps: Mapping[int, MeasuredSteps] = field(default_factory=dict)


def measure(context: LlamaContext, step_times: StepTimePredictor, calls: tuple[int, ...] = (1, 4, 16)) -> LlmSpeed:
    """Measure with an empty `context`, filled with short and then with longer contexts; `step_times` learns from it.
    Counts of `calls` for which there are no sequences are left out. Some seconds for a model of 0.6 billion weights on
    two cores."""
    length = min(PROMPT_TOKENS, context.batch_tokens)
    counts = [count for count in calls if count <= context.sequences]
    steps, cached = {}, 0
    for cached_tokens in (length, _LONG_CONTEXT_TOKENS):
        if cached_tokens + length > context.context_length:
            break
        while cached < cached_tokens:  # the first step makes ready what later ones find
            tokens = min(cached_tokens - cached, context.batch_tokens)
            context.evaluate([Chunk(0, cached, [0] * tokens, True)])
            cached += tokens
        for number in range(1, context.sequences):
            context.copy(0, number)
        context.evaluate([Chunk(0, cached_tokens, [0], True)])  # makes the copies, too
        context.truncate(0, cached_tokens)
        steps[cached_tokens] = _step_times(context, step_times, counts, cached_tokens)
    for number in range(context.sequences):
        context.truncate(number, 0)
    first = steps[length]
    prefill_tokens_per_s = length / first.prefill_s[length]
    return LlmSpeed(prefill_tokens_per_s, {count: count / first.decode_s[count] for count in counts}, steps)


def _step_times(
    context: LlamaContext, step_times: StepTimePredictor, counts: list[int], cached_tokens: int
) -> MeasuredSteps:
    """Step times with `cached_tokens` in each sequence. Generating sequences are seldom adjacent."""
    prompt_slices = sorted({min(tokens, context.batch_tokens) for tokens in (_SLICE_TOKENS, PROMPT_TOKENS)})
    decode = {}
    for count in counts:
        stride = 2 if 2 * count <= context.sequences + 1 else 1
        chunks = [Chunk(stride * number, cached_tokens, [0], True) for number in range(count)]
        decode[count] = _fastest_s(context, chunks, step_times)
    return MeasuredSteps(
        decode,
        {
            tokens: _fastest_s(context, [Chunk(0, cached_tokens, [0] * tokens, True)], step_times)
            for tokens in prompt_slices
        },
    )


def _fastest_s(context: LlamaContext, prompt_slices: list[Chunk], step_times: StepTimePredictor) -> float:
    """The least seconds of a step, because other work on the machine only adds to it."""
    elapsed = []
    for _ in range(_REPETITIONS):
        started = time.perf_counter()
        context.evaluate(prompt_slices)
        elapsed.append(time.perf_counter() - started)
        for chunk in prompt_slices:
            context.truncate(chunk.sequence, chunk.position)
        step_times.learn(len(prompt_slices), len(prompt_slices[0].tokens), elapsed[-1])
        if sum(elapsed) > _MAX_REPEATED_S:
            break
    return min(elapsed)
