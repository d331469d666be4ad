"""Leases that stay free although a node has fewer than its share: it cannot do the work, as a standby server or one
whose network is broken. Others acquire them, and compute their shares without that node for a while. Seconds are
monotonic; each node decides by what it sees itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

OVERDUE_S: Final = 5.0
"""A lease that was free for this long is acquired by any node: two heartbeats, and a second more."""
REFUSED_OVERDUE_S: Final = 2 * OVERDUE_S
"""The same for the leases that this node has refused: then no other node takes them."""
INELIGIBLE_S: Final = 120.0
"""How long shares are computed without a node that has left leases free."""


class UnclaimedLeases:
    """What a node sees of the leases of one kind of work."""

    def __init__(self, own: str) -> None:
        """`own` is the instance of this node."""
        self._own: Final = own
        self._free_since_s: dict[str, float] = {}
        self._ineligible: dict[str, tuple[float, int]] = {}
        """Instances without a share, until when, and how many leases they had."""

    def observe(self, names: Collection[str], holders: Mapping[str, str], up: Sequence[str], now_s: float) -> None:
        """See the leases of the work; `holders` and `up` as in `fair_share.changes`."""
        self._free_since_s = {name: self._free_since_s.get(name, now_s) for name in names if name not in holders}
        counts = Counter(holders.values())
        self._ineligible = {
            instance: (until_s, had)
            for instance, (until_s, had) in self._ineligible.items()
            if until_s > now_s and counts[instance] <= had
        }
        if not self._overdue(now_s, OVERDUE_S):
            return
        others = [each for each in self.eligible(up) if each != self._own]
        share = math.ceil(len(names) / (len(others) + 1))
        for each in others:
            if counts[each] < share - 1:
                self._ineligible[each] = (now_s + INELIGIBLE_S, counts[each])

    def eligible(self, up: Sequence[str]) -> list[str]:
        """Returns the nodes that are up and have a share, this one always among them."""
        return [each for each in up if each not in self._ineligible or each == self._own]

    def overdue(self, refused: Collection[str], up: Sequence[str], now_s: float) -> list[str]:
        """Returns the leases that this node takes above its share: its part of the overdue ones, and of those that it
        has refused the ones that no other node has taken either."""
        free = [name for name in self._overdue(now_s, OVERDUE_S) if name not in refused]
        part = math.ceil(len(free) / max(1, len(self.eligible(up))))
        return free[:part] + [name for name in self._overdue(now_s, REFUSED_OVERDUE_S) if name in refused]

    def _overdue(self, now_s: float, after_s: float) -> list[str]:
        return sorted(name for name, since_s in self._free_since_s.items() if now_s - since_s >= after_s)
