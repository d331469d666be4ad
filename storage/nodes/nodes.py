"""Nodes and their heartbeats, all by the database's clock, so that clocks of machines may differ."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import sqlalchemy as sa

from config.clock import machine_time, whole_ms
from config.errors import Conflict
from storage import tables
from storage.nodes.clock_reference import ClockSample
from storage.tables.columns import EPOCH
from storage.tables.row_mapping import RowMapping

NodeState = Literal["up", "draining", "down"]
DOWN_AFTER: Final = timedelta(seconds=6)
"""A node without a heartbeat for this long is down, and its leases are free."""

_t = tables.nodes
_CLOCK: Final = sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)")


@dataclass(frozen=True)
class Node:
    """A node; `instance` is new at each start. `url`: where other nodes reach its API, None if they do not. `capacity`:
    the calls that it may have at once."""

    name: str
    instance: str
    url: str | None
    version: str
    state: NodeState
    calls: int
    capacity: int
    started_at: datetime
    last_seen_at: datetime
    report: Mapping[str, Any] | None = None
    """What it reports of itself besides, as JSON; None from a version that does not."""

    @property
    def release(self) -> tuple[int, ...]:
        """The numbers of the version, to compare it."""
        return tuple(int(each) for each in re.findall(r"[0-9]+", self.version))

    @property
    def is_down(self) -> bool:
        """True if it was stopped, or has sent no heartbeat."""
        return self.state == "down"


NODE = RowMapping(Node, _t)


def database_time(conn: sa.Connection) -> datetime:
    """Returns the time of the database server; of this machine, where the database is a file."""
    if conn.dialect.name == "sqlite":
        return whole_ms(machine_time())
    return EPOCH + timedelta(milliseconds=conn.execute(_CLOCK).scalar_one())


def clock_sample(conn: sa.Connection) -> ClockSample:
    """Returns the database's time with that of the monotonic clock before and after."""
    before_s = time.monotonic()
    at = database_time(conn)
    return ClockSample(before_s, at, time.monotonic())


class NodeSuperseded(Conflict):
    """Another process has the name of this node by now."""


def store_heartbeat(conn: sa.Connection, node: Node) -> ClockSample:
    """Store the state of a node as of now; returns the database's time. The row of an instance that is down is
    replaced. Raises `NodeSuperseded` if another instance is not."""
    sample = clock_sample(conn)
    now = sample.at
    values = {name: getattr(node, name) for name in NODE.names if name not in ("name", "last_seen_at")}
    is_free = sa.or_(_t.c.instance == node.instance, _t.c.state == "down", _t.c.last_seen_at < now - DOWN_AFTER)
    update = sa.update(_t).where(_t.c.name == node.name, is_free).values(**values, last_seen_at=now)
    if conn.execute(update).rowcount == 0:
        if conn.execute(sa.select(_t.c.name).where(_t.c.name == node.name)).one_or_none() is not None:
            raise NodeSuperseded(f"another process sends heartbeats as {node.name}")
        conn.execute(sa.insert(_t).values(**values, name=node.name, last_seen_at=now))
    return sample


def still_down(conn: sa.Connection, names: Collection[str]) -> list[str]:
    """The nodes among these that are down, in the transaction that closes their calls."""
    down = {each.name for each in all_of(conn) if each.is_down}
    return [each for each in names if each in down]


def live_node(conn: sa.Connection, name: str) -> Node | None:
    """The node of this name, None if it is down or unknown."""
    return next((each for each in all_of(conn) if each.name == name and not each.is_down), None)


def all_of(conn: sa.Connection) -> list[Node]:
    """All nodes, by name; down are those that were stopped, and those without a heartbeat for `DOWN_AFTER`."""
    now = database_time(conn)
    found = (NODE.build(row) for row in conn.execute(sa.select(*NODE.columns).order_by(_t.c.name)))
    return [replace(each, state="down") if each.last_seen_at < now - DOWN_AFTER else each for each in found]


def forget(conn: sa.Connection, before: datetime) -> int:
    """Delete the nodes that were seen last before this time; returns their number."""
    return conn.execute(sa.delete(_t).where(_t.c.last_seen_at < before)).rowcount
