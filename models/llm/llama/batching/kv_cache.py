"""The KV cache: which sequence holds which tokens, and which of them the next answer reuses.

Pure. A sequence keeps what was evaluated for a call: its next turn evaluates only what is new. Where a prompt parts
from what is held (the caller interrupted, so that less was said than the model wrote), the rest is taken back. A call
that has nothing yet begins with a copy of what its prompt has in common with another one: calls of an agent begin
alike. Who has been silent for the longest time makes room for who comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_BLOCK: Final = 64
_WORTH: Final = 16
"""Tokens that must be in common: fewer are read as quickly as they are copied."""


@dataclass(frozen=True, slots=True)
class CopySequence:
    """Let sequence `target` forget what it holds, and hold what `source` does."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class TruncateSequence:
    """Keep the first `tokens` of a sequence and forget the rest."""

    sequence: int
    tokens: int


CacheChange = CopySequence | TruncateSequence


@dataclass(frozen=True, slots=True)
class CachePlan:
    """Where an answer is made: make the `changes` in order, then evaluate what follows the first `cached` tokens."""

    sequence: int
    cached: int
    changes: tuple[CacheChange, ...]


@dataclass(slots=True)
class _Sequence:
    """`held` is evaluated. `coming` is all that the answer in the making reads, while others may wait for it; `rank` is
    how important it is, 0 most."""

    cached: list[int] = field(default_factory=list)
    owner: str | None = None
    used_s: float = 0.0
    busy: bool = False
    expected: list[int] = field(default_factory=list)
    rank: int = 0


class KvCacheSlots:
    """The sequences of one model's memory."""

    def __init__(self, sequences: int) -> None:
        self._sequences = [_Sequence() for _ in range(sequences)]

    @property
    def idle(self) -> int:
        """How many sequences are not busy."""
        return sum(not sequence.busy for sequence in self._sequences)

    def acquire(
        self, owner: str, wanted: list[int], now_s: float, *, rank: int = 0, copies: bool = True
    ) -> CachePlan | None:
        """A place to read `wanted` for `owner`, busy from now on; None while there is none, while it is better to wait
        (`_is_being_cached`), or when it takes a copy and none is to be made now. `rank` is how important it is, 0
        most."""
        idle = [number for number, sequence in enumerate(self._sequences) if not sequence.busy]
        if not idle:
            return None
        common = [_common_prefix(sequence.cached, wanted) for sequence in self._sequences]
        if self._is_being_cached(wanted, max(common), rank):
            return None
        own = next((number for number in idle if self._sequences[number].owner == owner), None)
        target = own if own is not None else self._least_recently_used(idle)
        giver = max(
            range(len(common)),
            key=lambda number: (common[number], number == target, self._sequences[number].used_s),
        )
        if common[giver] < common[target] + _WORTH:
            giver = target
        if giver != target and not copies:
            return None
        # The last token is evaluated in any case: only so is it known what follows.
        kept = min(common[giver], len(wanted) - 1)
        changes = self._copy_prefix(giver, target, kept)
        sequence = self._sequences[target]
        sequence.owner, sequence.used_s, sequence.busy = owner, now_s, True
        sequence.expected, sequence.rank = wanted, rank
        return CachePlan(target, kept, tuple(changes))

    def should_wait(self, wanted: list[int], *, rank: int = 0) -> bool:
        """True if one who is at least as important reads what `wanted` begins with, and has not come to its end."""
        return self._is_being_cached(
            wanted, max(_common_prefix(sequence.cached, wanted) for sequence in self._sequences), rank
        )

    def on_evaluated(self, sequence: int, tokens: Sequence[int]) -> None:
        """The model has read these in a busy sequence."""
        self._sequences[sequence].cached.extend(tokens)

    def length(self, sequence: int) -> int:
        """How many tokens a sequence holds."""
        return len(self._sequences[sequence].cached)

    def release(self, sequence: int, now_s: float) -> None:
        """The answer is made, or nobody wants it. What was evaluated stays for the next turn."""
        this = self._sequences[sequence]
        this.busy, this.expected, this.used_s = False, [], now_s

    def clear(self, sequence: int) -> None:
        """Nothing is held there any more."""
        self._sequences[sequence].cached.clear()

    def _least_recently_used(self, idle: Sequence[int]) -> int:
        """The first that is empty, else the one that nobody has used for the longest time."""
        return min(idle, key=lambda number: (bool(self._sequences[number].cached), self._sequences[number].used_s))

    def _is_being_cached(self, wanted: list[int], common: int, rank: int) -> bool:
        """True if a sequence that is busy now will hold much more of `wanted` than is held anywhere."""
        return any(
            sequence.busy
            and sequence.rank <= rank
            and len(sequence.cached) < len(sequence.expected)
            and _common_prefix(sequence.expected, wanted) >= common + _BLOCK
            for sequence in self._sequences
        )

    def _copy_prefix(self, giver: int, target: int, kept: int) -> list[CacheChange]:
        """Let `target` hold the first `kept` tokens of `giver`."""
        source, this = self._sequences[giver], self._sequences[target]
        whole = kept == len(source.cached)
        this.cached = source.cached[:kept]
        changes: list[CacheChange] = [] if giver == target else [CopySequence(giver, target)]
        return changes if whole else [*changes, TruncateSequence(target, kept)]


def _common_prefix(one: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    end = min(len(one), len(other))
    start = 0
    while start < end and one[start : start + _BLOCK] == other[start : start + _BLOCK]:
        start += _BLOCK
    start = min(start, end)
    while start < end and one[start] == other[start]:
        start += 1
    return start
