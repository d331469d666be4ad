"""Concurrency limits of webhook attempts. A receiver is a host and port; `call.completed` and the other events count
apart. Fast receivers may have more concurrent attempts than slow ones, and slow and silent ones share half of all
attempts, so that no number of dead receivers delays another one. Each organization leaves attempts for the others.
Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from storage.webhooks.deliveries import organization_of_key

MAX_ATTEMPTS: Final = 400
"""Concurrent attempts. An organization may have as many as are free: 200 if it is alone; after four that one by one
take all they may have, 25 are free."""
MAX_SLOW_ATTEMPTS: Final = 200
"""The same for slow and silent receivers; shared in the same way."""
QUICK_S: Final = 1.0
"""A response within this time, of any status, is quick."""
MAX_RECEIVERS: Final = 10_000
"""Receivers whose speed is stored; the least recently used ones are dropped."""


class ReceiverSpeed(Enum):
    """The speed of a receiver's last response."""

    NEW = auto()
    QUICK = auto()
    SLOW = auto()
    SILENT = auto()
    """No response."""

    @property
    def limit(self) -> int:
        """Concurrent attempts to such a receiver."""
        return _LIMITS[self]

    @property
    def is_slow(self) -> bool:
        """True if it shares `MAX_SLOW_ATTEMPTS`."""
        return self in (ReceiverSpeed.SLOW, ReceiverSpeed.SILENT)


_LIMITS: Final = {ReceiverSpeed.NEW: 2, ReceiverSpeed.QUICK: 16, ReceiverSpeed.SLOW: 8, ReceiverSpeed.SILENT: 2}


@dataclass
class _Receiver:
    under_way: int = 0
    speed: ReceiverSpeed = ReceiverSpeed.NEW


@dataclass
class _OrganizationAttempts:
    """An organization's attempts under way; `slow`: those to slow and silent receivers."""

    under_way: int = 0
    slow: int = 0


class ReceiverConcurrency:
    """The attempts under way. What `shares` grants is taken by `begin` and given back by `end`. Receivers are named by
    `storage.webhooks.deliveries.destination_key`."""

    def __init__(self) -> None:
        self._receivers: OrderedDict[str, _Receiver] = OrderedDict()
        self._organizations: dict[str, _OrganizationAttempts] = {}
        self._all = 0
        self._slow = 0

    @property
    def under_way(self) -> int:
        """Attempts that have begun and not ended."""
        return self._all

    def shares(self, destinations: Iterable[str]) -> dict[str, int]:
        """Returns the number of attempts to each of these receivers that may begin now. Organizations with the fewest
        attempts come first, then receivers with the fewest, then those that are named first; each gets one before any
        gets another."""
        known = {each: self._receivers.get(each, _NEW) for each in destinations}
        owners = {each: organization_of_key(each) for each in known}
        share = {owner: replace(self._organizations.get(owner, _NONE)) for owner in owners.values()}
        order = sorted(known, key=lambda each: (share[owners[each]].under_way, known[each].under_way))
        granted = dict.fromkeys(order, 0)
        free, free_slow = MAX_ATTEMPTS - self._all, MAX_SLOW_ATTEMPTS - self._slow
        while order and free > 0:
            not_full = []
            for each in order:
                receiver, own = known[each], share[owners[each]]
                if receiver.under_way + granted[each] >= receiver.speed.limit or own.under_way >= free:
                    continue
                if receiver.speed.is_slow and own.slow >= free_slow:
                    continue
                granted[each] += 1
                free, own.under_way = free - 1, own.under_way + 1
                free_slow, own.slow = free_slow - receiver.speed.is_slow, own.slow + receiver.speed.is_slow
                not_full.append(each)
            order = not_full
        return {each: count for each, count in granted.items() if count}

    def begin(self, destination: str) -> None:
        """Count an attempt that begins."""
        receiver = self._receivers.setdefault(destination, _Receiver())
        self._receivers.move_to_end(destination)
        receiver.under_way += 1
        own = self._organizations.setdefault(organization_of_key(destination), _OrganizationAttempts())
        own.under_way += 1
        own.slow += receiver.speed.is_slow
        self._all += 1
        self._slow += receiver.speed.is_slow
        self._drop_oldest()

    def end(self, destination: str, speed: ReceiverSpeed | None) -> None:
        """An attempt has ended; `speed` None: it showed nothing about the receiver."""
        receiver, owner = self._receivers[destination], organization_of_key(destination)
        own, slow_before = self._organizations[owner], receiver.under_way * receiver.speed.is_slow
        receiver.under_way -= 1
        receiver.speed = speed or receiver.speed
        more_slow = receiver.under_way * receiver.speed.is_slow - slow_before
        own.under_way, own.slow = own.under_way - 1, own.slow + more_slow
        self._all, self._slow = self._all - 1, self._slow + more_slow
        if not own.under_way:
            del self._organizations[owner]

    def _drop_oldest(self) -> None:
        if len(self._receivers) > MAX_RECEIVERS:
            oldest = next(each for each, receiver in self._receivers.items() if not receiver.under_way)
            del self._receivers[oldest]


_NEW: Final = _Receiver()
_NONE: Final = _OrganizationAttempts()
