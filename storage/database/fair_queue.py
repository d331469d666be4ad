"""What waits, by its owner: owners take turns, and each keeps the order of its own."""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")
Owner = str | None
"""The id of an organization, or of a call or an agent where each is to have turns of its own; None: the server."""


class FairQueue(Generic[T]):
    """A round robin over owners: one that has a thousand items waiting keeps nobody waiting for more than one of them.
    With `most_at_once`, an organization has no more than so many items taken and not `done`; the server may have any
    number. For one thread."""

    def __init__(self, most_at_once: int | None = None) -> None:
        self._most_at_once = most_at_once
        self._waiting: dict[Owner, deque[T]] = {}
        """In the order of the turns."""
        self._taken = Counter[Owner]()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, owner: Owner, item: T) -> None:
        """Behind the owner's others; an owner that had none waiting has the last turn."""
        self._waiting.setdefault(owner, deque()).append(item)

    def put_back(self, owner: Owner, item: T) -> None:
        """One that was taken and given up: before the owner's others, and before all other owners."""
        mine = self._waiting.pop(owner, deque[T]())
        mine.appendleft(item)
        self._waiting = {owner: mine, **self._waiting}

    def take(self) -> tuple[Owner, T] | None:
        """The next item and its owner, who has the last turn from now on. None when nothing waits, or only items of
        organizations that have as many as they may."""
        owner = next(filter(self._may_have_more, self._waiting), ...)
        if owner is ...:
            return None
        mine = self._waiting.pop(owner)
        item = mine.popleft()
        if mine:
            self._waiting[owner] = mine
        self._taken[owner] += 1
        return owner, item

    def clear(self) -> list[T]:
        """Everything that waits; it does so no longer."""
        waiting, self._waiting = self._waiting, {}
        return [item for items in waiting.values() for item in items]

    def done(self, owner: Owner) -> None:
        """An item of the owner that was taken is done with."""
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]

    def _may_have_more(self, owner: Owner) -> bool:
        return owner is None or self._most_at_once is None or self._taken[owner] < self._most_at_once
