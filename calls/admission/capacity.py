"""Concurrency limits: the most calls of the process and of each organization, second legs of transfers included."""

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
    """The most calls that have not ended: in this process, and of an organization without a limit of its own."""

    process: int = 250
    organization: int = 100

    def exceeded(
        self,
        conn: sa.Connection,
        organization_id: str,
        organization_limit: int | None,
        ended: Collection[str],
        transfer_legs: TransferLegs,
    ) -> Literal["organization", "process"] | None:
        """Returns whose limit one more call would exceed; None if there is room. `organization_limit` is the
        organization's own; `ended` are calls whose end could not be stored, which no longer count. Exact in the
        transaction that stores the call, because such transactions run one after the other."""
        open_calls = calls.count_open(conn, organization_id, ended)
        return self.exceeded_with(open_calls, organization_id, organization_limit, transfer_legs)

    def exceeded_with(
        self,
        open_calls: OpenCallCounts,
        organization_id: str,
        organization_limit: int | None,
        transfer_legs: TransferLegs,
    ) -> Literal["organization", "process"] | None:
        """`exceeded` for a known number of open calls."""
        limit = self.organization if organization_limit is None else organization_limit
        if open_calls.organization + transfer_legs.count_of(organization_id) >= limit:
            return "organization"
        return "process" if open_calls.total + transfer_legs.total >= self.process else None


class TransferLegs:
    """The second legs of transfers, which are not calls of their own: the target of a REFER takes one place until it is
    the call's only leg or has ended. `check_call_capacity` raises when no place is left."""

    def __init__(
        self, check_call_capacity: Callable[[sa.Connection, Organization], None], on_change: Callable[[], None]
    ) -> None:
        self._check_call_capacity = check_call_capacity
        self.on_change: Final = on_change
        """Called when a place was given back."""
        self._lock = threading.Lock()
        self._counts = Counter[str]()

    def reserve(self, conn: sa.Connection, organization: Organization) -> None:
        """Take a place in the transaction that grants the transfer, on the database's thread. Raises `LimitExceeded` or
        `Unavailable`."""
        self._check_call_capacity(conn, organization)
        with self._lock:
            self._counts[organization.id] += 1

    def release(self, organization_id: str) -> None:
        """Give a place back; on the event loop."""
        with self._lock:
            self._counts[organization_id] -= 1
            self._counts += Counter()  # only what is above 0 stays
        self.on_change()

    def count_of(self, organization_id: str) -> int:
        """The places that an organization holds."""
        return self._counts[organization_id]

    @property
    def total(self) -> int:
        """All places that are held."""
        with self._lock:
            return self._counts.total()
