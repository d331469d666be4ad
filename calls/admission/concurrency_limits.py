"""Concurrency limits: concurrent calls of the process and of each organization, second legs of transfers included."""

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
from storage.database import named_lock, own_node

UNCOMMITTED: Final = 3 * 64
"""Calls that other transactions of this node may store at the same time: of PostgreSQL's write connections, each with
the writes of one commit. So near its limit a node admits the calls of all organizations one after the other."""


@dataclass(frozen=True)
class ConcurrencyLimits:
    """Maximum numbers of concurrent calls: of this process, and of an organization without a limit of its own."""

    process: int = 250
    organization: int = 100

    def exceeded_limit(
        self,
        conn: sa.Connection,
        organization_id: str,
        organization_limit: int | None,
        ended: Collection[str],
        referred_legs: ReferredLegs,
    ) -> Literal["organization", "process"] | None:
        """Returns the limit that one more call would exceed; None if there is none. `organization_limit` is the
        organization's own; `ended` are calls whose end could not be stored, which no longer count. Exact in the
        transaction that stores the call, because such transactions run one after the other."""
        open_calls = calls.count_open(conn, organization_id, ended)
        own = own_node.filter_of(conn)
        if own is not None and open_calls.total + referred_legs.total >= self.process - UNCOMMITTED:
            named_lock.acquire(conn, f"calls of {own}")  # other organizations' transactions run at the same time
            open_calls = calls.count_open(conn, organization_id, ended)
        return self.exceeded_limit_by(open_calls, organization_id, organization_limit, referred_legs)

    def exceeded_limit_by(
        self,
        open_calls: OpenCallCounts,
        organization_id: str,
        organization_limit: int | None,
        referred_legs: ReferredLegs,
    ) -> Literal["organization", "process"] | None:
        """`exceeded_limit` for a known number of open calls."""
        limit = self.organization if organization_limit is None else organization_limit
        if open_calls.organization + referred_legs.count_of(organization_id) >= limit:
            return "organization"
        return "process" if open_calls.total + referred_legs.total >= self.process else None


class ReferredLegs:
    """Counts the second legs of transfers, which are not calls of their own: the target of a REFER counts until it is
    the call's only leg or has ended. `check_call_capacity` raises if a concurrency limit is reached."""

    def __init__(
        self, check_call_capacity: Callable[[sa.Connection, Organization], None], on_change: Callable[[], None]
    ) -> None:
        self._check_call_capacity = check_call_capacity
        self.on_change: Final = on_change
        """Called after a leg was released."""
        self._lock = threading.Lock()
        self._counts = Counter[str]()

    def reserve(self, conn: sa.Connection, organization: Organization) -> None:
        """Take a place in the transaction that grants the transfer, on the database's thread. Raises `LimitExceeded` or
        `Unavailable`."""
        self._check_call_capacity(conn, organization)
        with self._lock:
            self._counts[organization.id] += 1

    def release(self, organization_id: str) -> None:
        """Count one leg less; on the event loop."""
        with self._lock:
            self._counts[organization_id] -= 1
            self._counts += Counter()  # only what is above 0 stays
        self.on_change()

    def count_of(self, organization_id: str) -> int:
        """The legs of an organization."""
        return self._counts[organization_id]

    @property
    def total(self) -> int:
        """The legs of all organizations."""
        with self._lock:
            return self._counts.total()
