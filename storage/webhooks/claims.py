"""Whose attempts are whose. An attempt is claimed in a transaction that commits before it is sent, for a limited time:
of two who send from one outbox only one has it. What is due is looked for by destination (host and port), so that
thousands of events for one of them make a look no slower than one event does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from storage import tables
from storage.webhooks import deliveries
from storage.webhooks.deliveries import DueAttempt

_a = tables.webhook_attempts
_PENDING: Final[sa.ColumnElement[str]] = sa.literal_column("'pending'")
"""As it stands in the index's condition, so that the index is used."""


def _least(column: sa.Column[Any], *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """The least value among what waits and nobody has claimed: one step in the index."""
    return sa.select(sa.func.min(column)).where(_a.c.status == _PENDING, _a.c.claimed_by.is_(None), *where)


def _destinations() -> sa.CTE:
    """Every destination once: from each one on to the next one."""
    first = _least(_a.c.destination).with_only_columns(sa.func.min(_a.c.destination).label("name"))
    found = first.cte("found", recursive=True)
    after = _least(_a.c.destination, _a.c.destination > found.c.name).correlate(found).scalar_subquery()
    return found.union_all(sa.select(after).where(found.c.name.is_not(None)))


def _waiting() -> sa.Select[Any]:
    found = _destinations()
    times = [
        _least(_a.c.next_attempt_at, _a.c.destination == found.c.name, _a.c.manual == manual)
        .correlate(found)
        .scalar_subquery()
        for manual in (sa.false(), sa.true())
    ]
    return sa.select(found.c.name, *times).where(found.c.name.is_not(None))


_WAITING: Final = _waiting()


@dataclass(frozen=True)
class DueDestination:
    """A destination for which something waits that nobody has claimed, and when the first of it is due."""

    destination: str
    due_at: datetime


def due_destinations(conn: sa.Connection) -> list[DueDestination]:
    """Every such destination, longest due first. A few steps in an index for each, however much waits there."""
    found = [DueDestination(name, min(filter(None, times))) for name, *times in conn.execute(_WAITING)]
    return sorted(found, key=lambda each: (each.due_at, each.destination))


def claim(
    conn: sa.Connection, claimant: str, shares: Mapping[str, int], *, now: datetime, until: datetime
) -> list[DueAttempt]:
    """Make attempts that are due at `now` the claimant's: of each destination at most its share, first those that
    somebody asked for, then those that are due for longest. Nobody else gets them before `until`."""
    found = [each for destination, share in shares.items() for each in _due(conn, now, destination, share)]
    free = sa.update(_a).where(_a.c.id.in_([each.attempt.id for each in found]), _a.c.claimed_by.is_(None))
    taken = conn.execute(free.values(claimed_by=claimant, claimed_until=until).returning(_a.c.id)).scalars().all()
    return [each for each in found if each.attempt.id in taken]


def _due(conn: sa.Connection, now: datetime, destination: str, most: int) -> list[DueAttempt]:
    asked_for = deliveries.due(conn, now, limit=most, destination=destination, manual=True)
    left = most - len(asked_for)
    return asked_for + deliveries.due(conn, now, limit=left, destination=destination, manual=False)


def expired(conn: sa.Connection, now: datetime) -> list[str]:
    """The attempts whose claims have expired."""
    found = sa.select(_a.c.id).where(_a.c.claimed_by.is_not(None), _a.c.claimed_until <= now)
    return list(conn.execute(found).scalars())


def release_expired(conn: sa.Connection, now: datetime, *, under_way: Collection[str] = ()) -> int:
    """Free what was claimed until `now` or before, without what is `under_way` with the one who asks: an attempt that
    is only late in being recorded. Returns how many there were."""
    left = [each for each in expired(conn, now) if each not in under_way]
    return _release(conn, _a.c.id.in_(left)) if left else 0


def release_all(conn: sa.Connection) -> int:
    """Free every claim. For one who knows that no other who claims is alive, as who holds the database's lock does.
    Returns how many there were."""
    return _release(conn, _a.c.claimed_by.is_not(None))


def _release(conn: sa.Connection, which: sa.ColumnElement[bool]) -> int:
    freed = sa.update(_a).where(which).values(claimed_by=None, claimed_until=None)
    return conn.execute(freed).rowcount
