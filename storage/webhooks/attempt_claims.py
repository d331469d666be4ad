"""Claims (leases) on delivery attempts. An attempt is claimed for a limited time, in a transaction that commits before
it is sent, so that of two senders on one outbox only one sends it. Due attempts are searched by destination
(organization, host and port), so that thousands of events for one of them do not slow the search down."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from storage import tables
from storage.nodes import nodes
from storage.webhooks import deliveries
from storage.webhooks.deliveries import DueAttempt

_a = tables.webhook_attempts
_PENDING: Final[sa.ColumnElement[str]] = sa.literal_column("'pending'")
"""The same text as in the index's condition, so that the index is used."""
_NODE: Final = "node "
"""Prefix of claimants that are nodes."""


def _min_pending(column: sa.Column[Any], *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """The minimum of a column among pending, unclaimed attempts: one step in the index."""
    return sa.select(sa.func.min(column)).where(_a.c.status == _PENDING, _a.c.claimed_by.is_(None), *where)


def _destinations() -> sa.CTE:
    """Every destination once, by steps from one to the next in the index."""
    first = _min_pending(_a.c.destination).with_only_columns(sa.func.min(_a.c.destination).label("name"))
    found = first.cte("found", recursive=True)
    after = _min_pending(_a.c.destination, _a.c.destination > found.c.name).correlate(found).scalar_subquery()
    return found.union_all(sa.select(after).where(found.c.name.is_not(None)))


def _waiting() -> sa.Select[Any]:
    found = _destinations()
    times = [
        _min_pending(_a.c.next_attempt_at, _a.c.destination == found.c.name, _a.c.manual == manual)
        .correlate(found)
        .scalar_subquery()
        for manual in (sa.false(), sa.true())
    ]
    return sa.select(found.c.name, *times).where(found.c.name.is_not(None))


_WAITING: Final = _waiting()


@dataclass(frozen=True)
class DueDestination:
    """A destination with pending, unclaimed attempts, and when the first of them is due."""

    destination: str
    due_at: datetime


def due_destinations(conn: sa.Connection) -> list[DueDestination]:
    """Every destination with due or later attempts, longest due first. Takes a few steps in an index for each,
    regardless of the number of attempts."""
    found = [DueDestination(name, min(filter(None, times))) for name, *times in conn.execute(_WAITING)]
    return sorted(found, key=lambda each: (each.due_at, each.destination))


def claim(
    conn: sa.Connection,
    claimant: str,
    shares: Mapping[str, int],
    *,
    now: datetime,
    until: datetime,
    overdue_at: datetime | None = None,
) -> list[DueAttempt]:
    """Claim attempts that are due at `now`: for each destination at most its share, manual ones first, then those due
    for longest. No other claimant can claim them before `until`. `overdue_at`: see `deliveries.due_attempts`."""
    due = [each for destination, share in shares.items() for each in _due(conn, now, destination, share, overdue_at)]
    ids = [each.attempt.id for each in due]  # since they were read, an attempt may have been claimed and recorded
    unclaimed = sa.update(_a).where(_a.c.id.in_(ids), _a.c.claimed_by.is_(None), _a.c.status == "pending")
    claimed = (
        conn.execute(unclaimed.values(claimed_by=claimant, claimed_until=until).returning(_a.c.id)).scalars().all()
    )
    return [each for each in due if each.attempt.id in claimed]


def _due(
    conn: sa.Connection, now: datetime, destination: str, most: int, overdue_at: datetime | None
) -> list[DueAttempt]:
    manual = deliveries.due_attempts(conn, now, limit=most, destination=destination, manual=True)
    left = most - len(manual)
    return manual + deliveries.due_attempts(
        conn, now, limit=left, destination=destination, manual=False, overdue_at=overdue_at
    )


def claimant_of(instance: str) -> str:
    """Returns the claimant's name of an instance of a node."""
    return f"{_NODE}{instance}"


def expired_claims(conn: sa.Connection, now: datetime, dead_until: datetime | None = None) -> list[str]:
    """The attempts whose claims have expired; with `dead_until` also those of instances of nodes that are down, if they
    expire until then."""
    over = _a.c.claimed_until <= now
    if dead_until is not None:
        live = [claimant_of(each.instance) for each in nodes.all_of(conn) if not each.is_down]
        is_dead = sa.and_(
            _a.c.claimed_until <= dead_until, _a.c.claimed_by.startswith(_NODE), _a.c.claimed_by.not_in(live)
        )
        over = sa.or_(over, is_dead)
    return list(conn.execute(sa.select(_a.c.id).where(_a.c.claimed_by.is_not(None), over)).scalars())


def release_expired(
    conn: sa.Connection, now: datetime, *, under_way: Collection[str] = (), dead_until: datetime | None = None
) -> int:
    """Release the `expired_claims`, except for those `under_way` in this process, whose result is only recorded late.
    Returns their number."""
    abandoned = [each for each in expired_claims(conn, now, dead_until) if each not in under_way]
    return _release(conn, _a.c.id.in_(abandoned)) if abandoned else 0


def release_all(conn: sa.Connection) -> int:
    """Release every claim; returns their number. The caller must hold the database's lock, so that no other claimant is
    alive."""
    return _release(conn, _a.c.claimed_by.is_not(None))


def _release(conn: sa.Connection, which: sa.ColumnElement[bool]) -> int:
    release = sa.update(_a).where(which).values(claimed_by=None, claimed_until=None)
    return conn.execute(release).rowcount
