"""Leases: work that only one node does at a time. A lease holds as long as the heartbeats of its holder, so that a
holder with a thousand of them writes one row every few seconds. Each new holder gets the next epoch; with `require` a
transaction checks its own (fencing)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from config.errors import Conflict
from storage import tables
from storage.nodes import nodes

NAMES_PER_STATEMENT: Final = 1000

_t = tables.leases


class LeaseLost(Conflict):
    """Another node holds the lease by now."""


@dataclass(frozen=True)
class Lease:
    """A lease as its holder knows it."""

    name: str
    instance: str
    epoch: int


def acquire(conn: sa.Connection, names: Iterable[str], instance: str, *, limit: int | None = None) -> list[Lease]:
    """Acquire the leases among these that no live node holds, at most `limit`. Returns the new ones; `instance` must
    send heartbeats. Of two nodes that do so at once only one gets a lease."""
    wanted = sorted(set(names))
    held = _read(conn, wanted, for_update=True)
    free = _free(conn, wanted, held)[:limit]
    return _take_all(conn, {name: held.get(name) for name in free}, instance)


def take(conn: sa.Connection, names: Collection[str], instance: str) -> list[Lease]:
    """Take leases that the caller knows to be free, under the lock of all leases. Returns them."""
    held = _read(conn, names, for_update=True)
    return _take_all(conn, {name: held.get(name) for name in names}, instance)


def has_free(conn: sa.Connection, names: Collection[str]) -> bool:
    """True if `acquire` would get one of these leases."""
    return bool(_free(conn, sorted(names), _read(conn, names)))


def _free(conn: sa.Connection, names: Sequence[str], held: Mapping[str, Lease]) -> list[str]:
    live = {each.instance for each in nodes.all_of(conn) if not each.is_down}
    return [name for name in names if name not in held or held[name].instance not in live]


def _take_all(conn: sa.Connection, before: Mapping[str, Lease | None], instance: str) -> list[Lease]:
    """Two statements for each `NAMES_PER_STATEMENT` leases at most."""
    taken = [Lease(name, instance, 1 if lease is None else lease.epoch + 1) for name, lease in before.items()]
    new = [{"name": name, "instance": instance, "epoch": 1} for name, lease in before.items() if lease is None]
    if new:
        conn.execute(sa.insert(_t), new)
    update = sa.update(_t).values(instance=instance, epoch=_t.c.epoch + 1)
    for part in _parts([name for name, lease in before.items() if lease is not None]):
        conn.execute(update.where(_t.c.name.in_(part)))
    return taken


def holders(conn: sa.Connection, prefix: str) -> dict[str, str]:
    """The instances that hold leases whose names begin so, by name; "" for released ones."""
    query = sa.select(_t.c.name, _t.c.instance).where(_t.c.name.startswith(prefix, autoescape=True))
    return {row[0]: row[1] for row in conn.execute(query)}


def held_by(conn: sa.Connection, instance: str) -> list[Lease]:
    """The leases of a node, by name."""
    query = sa.select(_t.c.name, _t.c.instance, _t.c.epoch).where(_t.c.instance == instance).order_by(_t.c.name)
    return [Lease(*row) for row in conn.execute(query)]


def counts(conn: sa.Connection) -> dict[str, int]:
    """The number of leases of each instance."""
    query = sa.select(_t.c.instance, sa.func.count()).group_by(_t.c.instance)
    return {row[0]: row[1] for row in conn.execute(query)}


def require(conn: sa.Connection, lease: Lease) -> None:
    """Raises `LeaseLost` unless the lease still has this epoch. For the transaction that does its work: no other node
    gets the lease before that ends."""
    query = sa.select(_t.c.epoch).where(_t.c.name == lease.name, _t.c.instance == lease.instance)
    if conn.execute(query.with_for_update(read=True)).scalar_one_or_none() != lease.epoch:
        raise LeaseLost(f"another node has the lease {lease.name}")


def release(conn: sa.Connection, instance: str, names: Collection[str] | None = None) -> int:
    """Give leases of a node back, by default all; returns their number. Their epochs stay."""
    update = sa.update(_t).where(_t.c.instance == instance).values(instance="")
    if names is None:
        return conn.execute(update).rowcount
    return sum(conn.execute(update.where(_t.c.name.in_(part))).rowcount for part in _parts(names))


def delete(conn: sa.Connection, instance: str, names: Collection[str]) -> None:
    """Delete leases of a node for work that there is no more."""
    for part in _parts(names):
        conn.execute(sa.delete(_t).where(_t.c.instance == instance, _t.c.name.in_(part)))


def _read(conn: sa.Connection, names: Collection[str], *, for_update: bool = False) -> dict[str, Lease]:
    query = sa.select(_t.c.name, _t.c.instance, _t.c.epoch)
    query = query.with_for_update() if for_update else query
    return {row.name: Lease(*row) for part in _parts(names) for row in conn.execute(query.where(_t.c.name.in_(part)))}


def _parts(names: Collection[str]) -> Iterator[list[str]]:
    """The names, as many at a time as a statement takes."""
    every = list(names)
    return (every[first : first + NAMES_PER_STATEMENT] for first in range(0, len(every), NAMES_PER_STATEMENT))
