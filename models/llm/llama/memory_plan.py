"""Plans the memory of a language model: weights, KV cache and attention buffers, within what the machine has free.
Pure.

The KV cache has a cell for each token of a sequence: keys and values of all layers. Attention of a batch takes a buffer
of scores for each of its tokens and each cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from config.errors import StartupError

DEFAULT_CONTEXT_LENGTH: Final = 4096
"""Tokens of a sequence: the agent's prompt and the conversation."""
REDUCED_CONTEXT_LENGTH: Final = 2048
"""Tokens of a sequence if memory is short: the agent's prompt and some minutes of conversation."""
MIN_CONTEXT_LENGTH: Final = 1024
"""Tokens of a sequence, at least, for one call."""
_CONTEXT_ALIGNMENT: Final = 256
"""Tokens: llama.cpp rounds a context length up to a multiple of it."""
MAX_SEQUENCES: Final = 64
_MIN_SEQUENCES: Final = 2
"""One of them for post-call work."""
_DEFAULT_SEQUENCES: Final = 16
_CALLS_PER_CORE: Final = 4
_RESERVE_BYTES: Final = 256 * 2**20
"""Bytes that always stay free."""
_MAX_SHARE: Final = 0.5
"""Share of the free memory beside the weights: speech recognition, voices and calls need the rest."""


@dataclass(frozen=True)
class ModelShape:
    """The dimensions that determine a model's memory: `kv_heads` of `key_size` and `value_size` elements in each
    layer."""

    layers: int
    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    weights_bytes: int

    def kv_cache_bytes(self, sequences: int, context_length: int, batch_tokens: int) -> int:
        """Bytes of a KV cache of 16 bits for `sequences` of `context_length` tokens, which llama.cpp rounds up, with
        the 32-bit attention scores of a batch."""
        context_length = -(-context_length // _CONTEXT_ALIGNMENT) * _CONTEXT_ALIGNMENT
        cell = self.layers * self.kv_heads * (self.key_size + self.value_size) * 2
        return context_length * (sequences * cell + batch_tokens * self.heads * 4)


@dataclass(frozen=True)
class MemoryPlan:
    """The KV cache: `sequences` of up to `context_length` tokens each, in `bytes` beside the weights."""

    sequences: int
    context_length: int
    bytes: int
    weights_bytes: int


def sequences_for_calls(calls: int, cores: float) -> int:
    """Number of sequences for `calls` concurrent calls: at most as many as `cores` can serve in time with a useful
    model."""
    return max(_MIN_SEQUENCES, min(calls, MAX_SEQUENCES, max(_DEFAULT_SEQUENCES, int(_CALLS_PER_CORE * cores))))


def plan_memory(
    name: str, shape: ModelShape, *, sequences: int, context_length: int, batch_tokens: int, free_bytes: int
) -> MemoryPlan:
    """The plan for `sequences` of up to `context_length` tokens. If they take more than half of the free memory beside
    the weights, contexts become shorter (`REDUCED_CONTEXT_LENGTH`), then fewer, then shorter still. Raises
    `StartupError` if not even one shortest context fits."""
    shortest = min(context_length, MIN_CONTEXT_LENGTH)
    available_bytes = free_bytes - shape.weights_bytes - _RESERVE_BYTES
    shortest_bytes = shape.kv_cache_bytes(1, shortest, batch_tokens)
    if available_bytes < shortest_bytes:
        needed = shape.weights_bytes + shortest_bytes + _RESERVE_BYTES
        raise StartupError(
            f"The language model {name} needs {_mebibytes(needed)} of memory ({_mebibytes(shape.weights_bytes)} for "
            f"its weights, {_mebibytes(shortest_bytes)} for the context of one call, "
            f"{_mebibytes(_RESERVE_BYTES)} that stay free), and {_mebibytes(free_bytes)} are free: choose a smaller one"
            " ([models] llm), or give this server more."
        )
    reduced = min(context_length, REDUCED_CONTEXT_LENGTH)
    fewer = ((count, reduced) for count in range(sequences, 0, -1))
    shorter = ((1, tokens) for tokens in range(reduced - _CONTEXT_ALIGNMENT, shortest, -_CONTEXT_ALIGNMENT))
    sequences, tokens = next(
        (
            (count, tokens)
            for count, tokens in ((sequences, context_length), *fewer, *shorter)
            if shape.kv_cache_bytes(count, tokens, batch_tokens) <= available_bytes * _MAX_SHARE
        ),
        (1, shortest),
    )
    return MemoryPlan(sequences, tokens, shape.kv_cache_bytes(sequences, tokens, batch_tokens), shape.weights_bytes)


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
