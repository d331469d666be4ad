"""The memory plan of a language model: what it takes, and how much of it a machine can give. Pure.

What a model knows of a talk takes a cell for each token: keys and values of all layers. While a batch is read, each of
its tokens is compared with all cells of its talk, which takes memory too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from config.errors import StartupError

CAPACITY: Final = 4096
"""Tokens of a talk: what an agent is told, and what was said of late."""
CONVERSATION_TOKENS: Final = 2048
"""Of one call: its agent's prompt and some minutes of talk."""
LEAST_TOKENS: Final = 1024
"""With less, not even one call can be talked through."""
_STEP: Final = 256
"""Tokens: llama.cpp rounds the length of talks up to a multiple of it."""
MOST_SEQUENCES: Final = 64
_LEAST_SEQUENCES: Final = 2
"""One for work after calls."""
_USUAL_SEQUENCES: Final = 16
_CALLS_OF_A_CORE: Final = 4
_RESERVE: Final = 256 * 2**20
"""Stays free whatever happens, bytes."""
_SHARE: Final = 0.5
"""Of what is left beside the weights: recognizers, voices and the calls themselves need the rest."""


@dataclass(frozen=True)
class Shape:
    """What a model's memory depends on; `kv_heads` of `key_size` and `value_size` elements in each of `layers`."""

    layers: int
    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    weights_bytes: int

    def kv_cache_bytes(self, sequences: int, capacity: int, batch_tokens: int) -> int:
        """So many talks of up to `capacity` tokens, which llama.cpp rounds up (keys and values of 16 bits), and what a
        batch of so many tokens needs to be compared with one of them (scores of 32 bits)."""
        capacity = -(-capacity // _STEP) * _STEP
        cell = self.layers * self.kv_heads * (self.key_size + self.value_size) * 2
        return capacity * (sequences * cell + batch_tokens * self.heads * 4)


@dataclass(frozen=True)
class MemoryPlan:
    """Memory for `talks` of up to `capacity` tokens each, which take `bytes`, beside the weights."""

    sequences: int
    capacity: int
    bytes: int
    weights_bytes: int


def sequences_for_calls(calls: int, cores: float) -> int:
    """How many talks to keep apart when there may be so many calls: not more than so many cores can answer in time with
    a model that is worth it."""
    return max(_LEAST_SEQUENCES, min(calls, MOST_SEQUENCES, max(_USUAL_SEQUENCES, int(_CALLS_OF_A_CORE * cores))))


def plan_memory(
    name: str, shape: Shape, *, sequences: int, capacity: int, batch_tokens: int, free_bytes: int
) -> MemoryPlan:
    """Memory for so many talks of up to `capacity` tokens each. Where that is more than half of what is free beside the
    weights, talks become shorter (`CONVERSATION_TOKENS`), then fewer, then shorter still. Raises `StartupError` when
    not even a short one fits into all that is free."""
    least = min(capacity, LEAST_TOKENS)
    left = free_bytes - shape.weights_bytes - _RESERVE
    least_bytes = shape.kv_cache_bytes(1, least, batch_tokens)
    if left < least_bytes:
        needed = shape.weights_bytes + least_bytes + _RESERVE
        raise StartupError(
            f"The language model {name} needs {_mebibytes(needed)} of memory ({_mebibytes(shape.weights_bytes)} for "
            f"its weights, {_mebibytes(least_bytes)} for the talk of one call, {_mebibytes(_RESERVE)} that stay free),"
            f" and {_mebibytes(free_bytes)} are free: choose a smaller one ([models] llm), or give this server more."
        )
    usual = min(capacity, CONVERSATION_TOKENS)
    fewer = ((count, usual) for count in range(sequences, 0, -1))
    shorter = ((1, tokens) for tokens in range(usual - _STEP, least, -_STEP))
    sequences, tokens = next(
        (
            (count, tokens)
            for count, tokens in ((sequences, capacity), *fewer, *shorter)
            if shape.kv_cache_bytes(count, tokens, batch_tokens) <= left * _SHARE
        ),
        (1, least),
    )
    return MemoryPlan(sequences, tokens, shape.kv_cache_bytes(sequences, tokens, batch_tokens), shape.weights_bytes)


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
