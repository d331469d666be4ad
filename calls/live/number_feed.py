"""Publishes phone numbers when they are changed, and when their trunks have another status."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from calls.live.events import LiveEvents
from sipcore.trunks.trunk import TrunkStatus
from storage.phone_numbers.phone_numbers import PhoneNumber

ReadStatuses = Callable[[str | None], Iterable[tuple[PhoneNumber, TrunkStatus]]]
"""Returns the numbers with this trunk key, or with any trunk, and the statuses of their trunks."""


@dataclass(frozen=True)
class NumberNews:
    """A number with the status of its trunk."""

    number: PhoneNumber
    status: TrunkStatus


@dataclass(frozen=True)
class DeletedNumber:
    """A number that was deleted."""

    id: str


@dataclass(frozen=True)
class _Told:
    organization_id: str
    updated_at: datetime
    status: TrunkStatus


class NumberFeed:
    """For the event loop. What is published once is not published again before it changes."""

    def __init__(
        self, events: LiveEvents, statuses: ReadStatuses, status: Callable[[PhoneNumber], TrunkStatus]
    ) -> None:
        self._events = events
        self._statuses = statuses
        self._status = status
        self._told: dict[str, _Told] = {}
        self._has_read = False
        self._deleted: set[str] = set()
        """Numbers that the last read may still have had."""

    def on_stored(self, number: PhoneNumber) -> None:
        """A number was created or changed."""
        self._tell(number, self._status(number), of_this_node=False)

    def on_deleted(self, organization_id: str, number_id: str) -> None:
        """A number was deleted."""
        self._told.pop(number_id, None)
        self._deleted.add(number_id)
        self._events.publish(organization_id, "number.updated", lambda: DeletedNumber(number_id))

    def on_trunk_status(self, key: str, _status: TrunkStatus) -> None:
        """A trunk has another status."""
        for number, status in self._statuses(key):
            self._tell(number, status)

    def on_read(self) -> None:
        """All numbers with trunks were read again; the first time nothing is published, because nothing has changed."""
        has_read, self._has_read = self._has_read, True
        numbers = list(self._statuses(None))
        self._deleted &= {number.id for number, _ in numbers}
        for number, status in numbers:
            self._tell(number, status, silently=not has_read)

    def _tell(
        self, number: PhoneNumber, status: TrunkStatus, *, silently: bool = False, of_this_node: bool = True
    ) -> None:
        told = _Told(number.organization_id, number.updated_at, status)
        if self._told.get(number.id) == told or number.id in self._deleted:
            return
        self._told[number.id] = told
        if not silently:
            self._events.publish(
                number.organization_id,
                "number.updated",
                lambda: NumberNews(number, status),
                of_this_node=of_this_node,
            )
