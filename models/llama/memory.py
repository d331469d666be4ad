"""How much memory a language model takes, and how much of it a machine can give. Pure.

What a model knows of the talk takes a cell for each token: keys and values of all layers. While a batch is read, each
of its tokens is compared with all cells, which takes memory too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from config.errors import StartupError

TALK_TOKENS: Final = 2048
"""Of one call: its agent's prompt and some minutes of talk. Calls of the same agent share the prompt."""
LEAST_TOKENS: Final = 1024
"""With less, not even one call can be talked through."""
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

    def cell_bytes(self, batch_tokens: int, element_bytes: int = 2) -> int:
        """One token of talk, and what a batch of so many tokens needs to be compared with it (32-bit scores)."""
        kept = self.layers * self.kv_heads * (self.key_size + self.value_size) * element_bytes
        return kept + batch_tokens * self.heads * 4


@dataclass(frozen=True)
class Plan:
    """Memory for the talk of all calls together: `cells` tokens, which take `bytes`, beside the weights. So many
    `talks` go on without forgetting one another's words."""

    cells: int
    bytes: int
    weights_bytes: int
    talks: int


def sequences_for(calls: int, cores: float) -> int:
    """How many talks to keep apart when there may be so many calls: not more than so many cores can answer in time with
    a model that is worth it."""
    return max(_LEAST_SEQUENCES, min(calls, MOST_SEQUENCES, max(_USUAL_SEQUENCES, int(_CALLS_OF_A_CORE * cores))))


def plan(name: str, shape: Shape, *, sequences: int, capacity: int, batch_tokens: int, free_bytes: int) -> Plan:
    """Memory for so many talks of up to `capacity` tokens each, or for as many as fit into half of what is free beside
    the weights. Raises `StartupError` when not even one does."""
    cell = shape.cell_bytes(batch_tokens)
    least = min(capacity, LEAST_TOKENS)
    left = free_bytes - shape.weights_bytes - _RESERVE
    if left < least * cell:
        needed = shape.weights_bytes + least * cell + _RESERVE
        raise StartupError(
            f"The language model {name} needs {_mebibytes(needed)} of memory ({_mebibytes(shape.weights_bytes)} for "
            f"its weights, {_mebibytes(least * cell)} for the talk of one call, {_mebibytes(_RESERVE)} that stay free),"
            f" and {_mebibytes(free_bytes)} are free: choose a smaller one ([models] llm), or give this server more."
        )
    wanted = max(capacity, sequences * min(capacity, TALK_TOKENS))
    cells = min(wanted, max(int(left * _SHARE) // cell, least))
    return Plan(cells, cells * cell, shape.weights_bytes, max(1, cells // min(capacity, TALK_TOKENS)))


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
