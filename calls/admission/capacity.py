"""Concurrency limits: how many calls the process and each organization may have, and the second legs of transfers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

import sqlalchemy as sa

from storage.accounts.organizations import Organization
from storage.calls import calls
from storage.calls.calls import OpenCallCounts


@dataclass(frozen=True)
class ConcurrencyLimits:
    """The most calls that have not ended: of this process, and of an organization without a ceiling of its own."""

    process: int = 250
    organization: int = 100

    def exceeded(
        self,
        conn: sa.Connection,
        organization_id: str,
        own: int | None,
        gone: Collection[str],
        second_legs: TransferLegs,
    ) -> Literal["organization", "process"] | None:
        """Who has no place left for one more call; None when both have. `own` is the organization's own ceiling, `gone`
        are calls that count no more though their end could not be stored. In the transaction that stores the call this
        is exact: such transactions run one after the other."""
        return self.exceeded_with(calls.count_open(conn, organization_id, gone), organization_id, own, second_legs)

    def exceeded_with(
        self, there: OpenCallCounts, organization_id: str, own: int | None, second_legs: TransferLegs
    ) -> Literal["organization", "process"] | None:
        """The same with so many calls."""
        if there.organization + second_legs.count_of(organization_id) >= (self.organization if own is None else own):
            return "organization"
        return "process" if there.everywhere + second_legs.total >= self.process else None


class TransferLegs:
    """Legs that are no calls of their own: whom a REFER has us call takes a place, until it is the call's only leg or
    has ended. `check_call_capacity` raises when there is none for one more."""

    def __init__(
        self, check_call_capacity: Callable[[sa.Connection, Organization], None], has_changed: Callable[[], None]
    ) -> None:
        self._check_call_capacity = check_call_capacity
        self.on_change: Final = has_changed
        """Tell that there are more or fewer than before."""
        self._lock = threading.Lock()
        self._of = Counter[str]()

    def reserve(self, conn: sa.Connection, organization: Organization) -> None:
        """A place, in the transaction that grants it, on the database's thread. Raises `TooMany` or `Unavailable`."""
        self._check_call_capacity(conn, organization)
        with self._lock:
            self._of[organization.id] += 1

    def release(self, organization_id: str) -> None:
        """One that was taken; on the event loop."""
        with self._lock:
            self._of[organization_id] -= 1
            self._of += Counter()  # only what is above 0 stays
        self.on_change()

    def count_of(self, organization_id: str) -> int:
        """How many an organization has."""
        return self._of[organization_id]

    @property
    def total(self) -> int:
        """How many there are."""
        with self._lock:
            return self._of.total()
