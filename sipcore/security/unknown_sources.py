"""The addresses whose SIP messages the source guard dropped last: no trunk has them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from config.clock import utc_now

MAX_UNKNOWN_SOURCES: Final = 50


@dataclass(frozen=True)
class UnknownSource:
    """An address that is no trunk's. `messages`: how many of its SIP messages were dropped since it is kept; `last_at`:
    when the last ones came, exact to the interval of `log_events`."""

    address: str
    messages: int
    last_at: datetime


class UnknownSources:
    """The `MAX_UNKNOWN_SOURCES` unknown sources whose messages came last. Event loop only."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, UnknownSource] = OrderedDict()

    def add(self, address: str, messages: int) -> None:
        """Add messages that were dropped."""
        earlier = self._kept.pop(address, None)
        total = messages + (0 if earlier is None else earlier.messages)
        self._kept[address] = UnknownSource(address, total, utc_now())
        if len(self._kept) > MAX_UNKNOWN_SOURCES:
            self._kept.popitem(last=False)

    def latest(self) -> list[UnknownSource]:
        """Returns those that are kept, the latest first."""
        return list(reversed(self._kept.values()))


def merged_sources(lists: Iterable[Iterable[UnknownSource]]) -> list[UnknownSource]:
    """Returns the `MAX_UNKNOWN_SOURCES` unknown sources of several servers whose messages came last, the latest first:
    each address once, with its messages at all of them."""
    by_address: dict[str, UnknownSource] = {}
    for each in (source for sources in lists for source in sources):
        other = by_address.get(each.address)
        if other is not None:
            each = UnknownSource(each.address, other.messages + each.messages, max(other.last_at, each.last_at))
        by_address[each.address] = each
    return sorted(by_address.values(), key=lambda each: each.last_at, reverse=True)[:MAX_UNKNOWN_SOURCES]
