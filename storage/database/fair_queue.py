"""A fair queue: owners take turns, and each owner's items keep their order."""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")
Owner = str | None
"""The id of an organization, or of a call or an agent where these take turns; None: the server."""


class FairQueue(Generic[T]):
    """A round-robin queue over owners: an owner with a thousand items delays any other by one of them. `most_at_once`
    limits the items of an organization that are taken and not `done`; the server has no such limit. For one thread."""

    def __init__(self, most_at_once: int | None = None) -> None:
        self._most_at_once = most_at_once
        self._waiting: dict[Owner, deque[T]] = {}
        """By owner, in the order of the turns."""
        self._taken = Counter[Owner]()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, owner: Owner, item: T) -> None:
        """Add an item after the owner's others; an owner without waiting items gets the last turn."""
        self._waiting.setdefault(owner, deque()).append(item)

    def put_back(self, owner: Owner, item: T) -> None:
        """Put a taken item back, before the owner's others and before all other owners."""
        items = self._waiting.pop(owner, deque[T]())
        items.appendleft(item)
        self._waiting = {owner: items, **self._waiting}

    def take(self) -> tuple[Owner, T] | None:
        """Removes and returns the next item with its owner, which then has the last turn. None when no item waits, or
        only items of organizations at their limit."""
        owner = next(filter(self._may_have_more, self._waiting), ...)
        if owner is ...:
            return None
        items = self._waiting.pop(owner)
        item = items.popleft()
        if items:
            self._waiting[owner] = items
        self._taken[owner] += 1
        return owner, item

    def clear(self) -> list[T]:
        """Removes and returns all waiting items."""
        waiting, self._waiting = self._waiting, {}
        return [item for items in waiting.values() for item in items]

    def mark_done(self, owner: Owner) -> None:
        """Count a taken item of the owner as finished."""
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]

    def _may_have_more(self, owner: Owner) -> bool:
        return owner is None or self._most_at_once is None or self._taken[owner] < self._most_at_once
