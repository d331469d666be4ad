"""KV cache reuse: which sequence holds which tokens, and which of them a request reuses. Pure.

A sequence keeps the tokens that were evaluated for a call, so that the next turn evaluates only new ones. Where a
prompt differs from the cached tokens (after barge-in less was spoken than generated), the rest is truncated. A new call
starts with a copy of the prefix that its prompt shares with another sequence, because calls of one agent share their
system prompt. The least recently used sequence is evicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_BLOCK: Final = 64
_MIN_COPY_TOKENS: Final = 16
"""Shared tokens from which a copy is faster than evaluation."""


@dataclass(frozen=True, slots=True)
class CopySequence:
    """Replace the content of sequence `target` by that of `source`."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class TruncateSequence:
    """Remove all but the first `tokens` of a sequence."""

    sequence: int
    tokens: int


CacheChange = CopySequence | TruncateSequence


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The sequence for a request: apply `changes` in order, then evaluate the tokens after the first `cached` ones."""

    sequence: int
    cached: int
    changes: tuple[CacheChange, ...]


@dataclass(slots=True)
class _Sequence:
    """`cached`: the evaluated tokens. `expected`: the prompt that is being evaluated, for which others may wait;
    `rank`: its priority, 0 is the highest."""

    cached: list[int] = field(default_factory=list)
    owner: str | None = None
    used_s: float = 0.0
    busy: bool = False
    expected: list[int] = field(default_factory=list)
    rank: int = 0


class KvCacheSlots:
    """The sequences of one context."""

    def __init__(self, sequences: int) -> None:
        self._sequences = [_Sequence() for _ in range(sequences)]

    @property
    def idle(self) -> int:
        """Number of sequences that are not busy."""
        return sum(not sequence.busy for sequence in self._sequences)

    def acquire(
        self, owner: str, prompt: list[int], now_s: float, *, rank: int = 0, copies: bool = True
    ) -> CachePlan | None:
        """Reserve a sequence for `prompt` of `owner`. None if all are busy, if waiting is better (`_is_being_cached`),
        or if it takes a copy and `copies` is False. `rank`: the priority, 0 is the highest."""
        idle = [number for number, sequence in enumerate(self._sequences) if not sequence.busy]
        if not idle:
            return None
        shared_tokens = [_common_prefix(sequence.cached, prompt) for sequence in self._sequences]
        if self._is_being_cached(prompt, max(shared_tokens), rank):
            return None
        own_number = next((number for number in idle if self._sequences[number].owner == owner), None)
        target = own_number if own_number is not None else self._least_recently_used(idle)
        source_number = max(
            range(len(shared_tokens)),
            key=lambda number: (shared_tokens[number], number == target, self._sequences[number].used_s),
        )
        if shared_tokens[source_number] < shared_tokens[target] + _MIN_COPY_TOKENS:
            source_number = target
        if source_number != target and not copies:
            return None
        # The last token is evaluated in any case: only so is it known what follows.
        reused = min(shared_tokens[source_number], len(prompt) - 1)
        changes = self._copy_prefix(source_number, target, reused)
        sequence = self._sequences[target]
        sequence.owner, sequence.used_s, sequence.busy = owner, now_s, True
        sequence.expected, sequence.rank = prompt, rank
        return CachePlan(target, reused, tuple(changes))

    def should_wait(self, prompt: list[int], *, rank: int = 0) -> bool:
        """True if a request of at least the same priority is evaluating a long prefix of `prompt`."""
        return self._is_being_cached(
            prompt, max(_common_prefix(sequence.cached, prompt) for sequence in self._sequences), rank
        )

    def on_evaluated(self, sequence: int, tokens: Sequence[int]) -> None:
        """Record tokens that were evaluated in a busy sequence."""
        self._sequences[sequence].cached.extend(tokens)

    def length(self, sequence: int) -> int:
        """Number of cached tokens of a sequence."""
        return len(self._sequences[sequence].cached)

    def release(self, sequence: int, now_s: float) -> None:
        """Release a sequence. Its tokens stay cached for the next turn."""
        released = self._sequences[sequence]
        released.busy, released.expected, released.used_s = False, [], now_s

    def clear(self, sequence: int) -> None:
        """Record that a sequence is empty."""
        self._sequences[sequence].cached.clear()

    def _least_recently_used(self, idle: Sequence[int]) -> int:
        """The first empty sequence, else the least recently used one."""
        return min(idle, key=lambda number: (bool(self._sequences[number].cached), self._sequences[number].used_s))

    def _is_being_cached(self, prompt: list[int], shared_tokens: int, rank: int) -> bool:
        """True if a busy sequence will hold a longer prefix of `prompt` than any sequence does now."""
        return any(
            sequence.busy
            and sequence.rank <= rank
            and len(sequence.cached) < len(sequence.expected)
            and _common_prefix(sequence.expected, prompt) >= shared_tokens + _BLOCK
            for sequence in self._sequences
        )

    def _copy_prefix(self, source_number: int, target: int, reused: int) -> list[CacheChange]:
        """Give `target` the first `reused` tokens of `source_number`."""
        source, sequence = self._sequences[source_number], self._sequences[target]
        is_whole = reused == len(source.cached)
        sequence.cached = source.cached[:reused]
        changes: list[CacheChange] = [] if source_number == target else [CopySequence(source_number, target)]
        return changes if is_whole else [*changes, TruncateSequence(target, reused)]


def _common_prefix(one: list[int], other: list[int]) -> int:
    """The length of the common prefix."""
    end = min(len(one), len(other))
    start = 0
    while start < end and one[start : start + _BLOCK] == other[start : start + _BLOCK]:
        start += _BLOCK
    start = min(start, end)
    while start < end and one[start] == other[start]:
        start += 1
    return start
