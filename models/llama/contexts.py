"""Which sequence of the model's memory holds which tokens, and how the next answer makes the most of them.

Pure. A sequence keeps what was evaluated for a call: its next turn evaluates only what is new. Where a prompt parts
from what is held (the caller interrupted, so that less was said than the model wrote), the rest is taken back. A call
that has nothing yet shares what its prompt has in common with another one: calls of an agent begin alike. All
sequences live in one pool of cells, one for each token; what sequences share takes its cells once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_BLOCK: Final = 64


@dataclass(frozen=True, slots=True)
class Copy:
    """Let sequence `target` forget what it holds, and share what `source` does."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the first `tokens` of a sequence and forget the rest."""

    sequence: int
    tokens: int


Change = Copy | Keep


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer is made: make the `changes` in order, then evaluate what follows the first `kept` tokens."""

    sequence: int
    kept: int
    changes: tuple[Change, ...]


@dataclass(slots=True)
class _Sequence:
    """`held` is evaluated, in `cells`. `coming` is all that the answer in the making reads, while others may wait for
    it; `until` is how long it may grow; `rank` is how important it is, 0 most."""

    held: list[int] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    owner: str | None = None
    used_s: float = 0.0
    busy: bool = False
    coming: list[int] = field(default_factory=list)
    until: int = 0
    rank: int = 0


class Contexts:
    """The sequences of one model's memory, in a pool of `cells`."""

    def __init__(self, sequences: int, cells: int) -> None:
        self._room = cells
        self._sequences = [_Sequence() for _ in range(sequences)]
        self._users: Counter[int] = Counter()  # of each cell that is taken
        self._new_cells = itertools.count()

    @property
    def idle(self) -> int:
        """How many sequences are not busy."""
        return sum(not sequence.busy for sequence in self._sequences)

    @property
    def taken(self) -> int:
        """How many cells hold something."""
        return len(self._users)

    def enter(self, owner: str, wanted: list[int], most: int, now_s: float, *, rank: int = 0) -> Place | None:
        """A place to read `wanted` for `owner` and to write at most `most` tokens after it, busy from now on; None
        while there is none, or while it is better to wait (`_is_coming`). Both together fit into the cells. `rank` is
        how important it is, 0 most."""
        found = self._find(owner, wanted, most, rank)
        if found is None:
            return None
        giver, target, kept, victims = found
        sequence = self._sequences[target]
        changes = [*(self._cut(victim, 0) for victim in victims), *self._take_over(giver, target, kept)]
        sequence.owner, sequence.used_s, sequence.busy = owner, now_s, True
        sequence.coming, sequence.until, sequence.rank = wanted, len(wanted) + most, rank
        return Place(target, kept, tuple(changes))

    def would_enter(
        self, owner: str, wanted: list[int], most: int, now_s: float, left: Sequence[int], *, rank: int = 0
    ) -> bool:
        """Whether `enter` would find a place if the busy sequences `left` were left."""
        leaving = [self._sequences[number] for number in left]
        used_s = [sequence.used_s for sequence in leaving]
        for sequence in leaving:
            sequence.busy, sequence.used_s = False, now_s
        found = self._find(owner, wanted, most, rank)
        for sequence, before_s in zip(leaving, used_s, strict=True):
            sequence.busy, sequence.used_s = True, before_s
        return found is not None

    def _find(self, owner: str, wanted: list[int], most: int, rank: int) -> tuple[int, int, int, list[int]] | None:
        """Which sequence gives how many tokens to which, and which are emptied: giver, target, tokens, victims."""
        idle = [number for number, sequence in enumerate(self._sequences) if not sequence.busy]
        if not idle:
            return None
        common = [_common(sequence.held, wanted) for sequence in self._sequences]
        own = next((number for number in idle if self._sequences[number].owner == owner), None)
        target = own if own is not None else self._oldest(idle)
        source = max(
            range(len(common)),
            key=lambda number: (common[number], number == target, self._sequences[number].used_s),
        )
        if self._is_coming(wanted, common[source], rank):
            return None
        for giver in dict.fromkeys((source, target)):
            # The last token is evaluated in any case: only so is it known what follows.
            kept = min(common[giver], len(wanted) - 1)
            victims = self._victims(len(wanted) + most - kept, giver, target, kept)
            if victims is not None:
                return giver, target, kept, victims
        return None

    def empty_oldest(self) -> Keep | None:
        """Forget what nobody has used for the longest time. None: all that is held is in use."""
        held = [place for place, sequence in enumerate(self._sequences) if sequence.held and not sequence.busy]
        return self._cut(self._oldest(held), 0) if held else None

    def evaluated(self, sequence: int, tokens: Sequence[int]) -> None:
        """The model has read these in a busy sequence."""
        this = self._sequences[sequence]
        cells = list(itertools.islice(self._new_cells, len(tokens)))
        self._users.update(cells)
        this.held.extend(tokens)
        this.cells.extend(cells)

    def length(self, sequence: int) -> int:
        """How many tokens a sequence holds."""
        return len(self._sequences[sequence].held)

    def leave(self, sequence: int, now_s: float) -> None:
        """The answer is made, or nobody wants it. What was evaluated stays for the next turn."""
        this = self._sequences[sequence]
        this.busy, this.coming, this.until, this.used_s = False, [], 0, now_s

    def lost(self, sequence: int) -> None:
        """Nothing is held there any more."""
        self._cut(sequence, 0)

    def _oldest(self, idle: Sequence[int]) -> int:
        """An empty one, else the one that nobody has used for the longest time."""
        return min(idle, key=lambda number: (bool(self._sequences[number].held), self._sequences[number].used_s))

    def _is_coming(self, wanted: list[int], common: int, rank: int) -> bool:
        """Whether a sequence that is busy now will hold much more of `wanted` than is held anywhere."""
        return any(
            sequence.busy
            and sequence.rank <= rank
            and len(sequence.held) < len(sequence.coming)
            and _common(sequence.coming, wanted) >= common + _BLOCK
            for sequence in self._sequences
        )

    def _victims(self, needed: int, giver: int, target: int, kept: int) -> list[int] | None:
        """The idle sequences to empty, the oldest first, so that `needed` cells are free when `target` holds the first
        `kept` tokens of `giver`. None when even all of them are too few."""
        promised = sum(sequence.until - len(sequence.held) for sequence in self._sequences if sequence.busy)
        lacking = needed + promised + len(self._users) - self._room
        if lacking <= 0:
            return []
        users, victims = Counter(self._users), []
        lacking -= _let_go(users, self._sequences[target].cells[kept if giver == target else 0 :])
        others = (number for number in range(len(self._sequences)) if number not in (giver, target))
        for number in sorted(others, key=lambda number: self._sequences[number].used_s):
            if lacking > 0 and not self._sequences[number].busy and self._sequences[number].held:
                lacking -= _let_go(users, self._sequences[number].cells)
                victims.append(number)
        return None if lacking > 0 else victims

    def _take_over(self, giver: int, target: int, kept: int) -> list[Change]:
        """Let `target` hold the first `kept` tokens of `giver`."""
        if giver == target:
            return [self._cut(target, kept)] if kept < self.length(target) else []
        self._cut(target, 0)
        source, this = self._sequences[giver], self._sequences[target]
        this.held, this.cells = source.held[:kept], source.cells[:kept]
        self._users.update(this.cells)
        whole = kept == len(source.held)
        return [Copy(giver, target)] if whole else [Copy(giver, target), Keep(target, kept)]

    def _cut(self, number: int, tokens: int) -> Keep:
        sequence = self._sequences[number]
        _let_go(self._users, sequence.cells[tokens:])
        del sequence.held[tokens:], sequence.cells[tokens:]
        return Keep(number, tokens)


def _let_go(users: Counter[int], cells: Sequence[int]) -> int:
    """One user less of each; how many cells have none now."""
    free = 0
    for cell in cells:
        users[cell] -= 1
        if not users[cell]:
            del users[cell]
            free += 1
    return free


def _common(one: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    end = min(len(one), len(other))
    start = 0
    while start < end and one[start : start + _BLOCK] == other[start : start + _BLOCK]:
        start += _BLOCK
    start = min(start, end)
    while start < end and one[start] == other[start]:
        start += 1
    return start
