"""The share of this node in work that is spread over all nodes, piece by piece, each with a lease."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final, Protocol

import sqlalchemy as sa
import structlog

from storage.database.database import Database
from storage.nodes import fair_share, leases, nodes
from storage.nodes.fair_share import LeaseChanges
from storage.nodes.nodes import DOWN_AFTER, Node
from storage.nodes.unclaimed_leases import UnclaimedLeases

REFUSED_S: Final = 600.0
"""How long a node does not acquire what it has refused; twice as long each time in succession."""
MAX_REFUSED_S: Final = 7200.0
GRACE_S: Final = 1.0
"""How long a node goes on with a piece after another one has acquired it, besides the time that this one takes to begin
with all that it has acquired."""

log = structlog.get_logger()


class WorkShare(Protocol):
    """Which pieces of work this node does. On the event loop, `on_change` is called when these have changed, and
    `on_holders` when other nodes have more or fewer than before."""

    on_change: Callable[[], None]
    on_holders: Callable[[], None]

    def want(self, keys: Collection[str]) -> None:
        """These are all pieces of the work."""

    def does(self, key: str) -> bool:
        """True while this node does the piece."""

    def holder(self, key: str) -> str | None:
        """The name of the node that has the piece, as of the last heartbeat; None if none has it."""

    def refuse(self, keys: Collection[str]) -> None:
        """This node cannot do these pieces: another one should, for a while."""


class AllWork:
    """The share of the only server of a database."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.on_holders: Callable[[], None] = lambda: None

    def want(self, keys: Collection[str]) -> None:
        """As `WorkShare.want`."""

    def does(self, key: str) -> bool:
        """As `WorkShare.does`."""
        return True

    def holder(self, key: str) -> str | None:
        """As `WorkShare.holder`."""
        return None

    def refuse(self, keys: Collection[str]) -> None:
        """As `WorkShare.refuse`: there is no other node."""


@dataclass
class _Refusal:
    """A piece that this node could not do: until when it does not acquire it, monotonic, and how often in succession;
    `is_new`: its lease is still to be released."""

    until_s: float
    times: int = 1
    is_new: bool = True


@dataclass(frozen=True)
class _Plan:
    """Leases that this node acquires and releases, those of its own for work that there is no more, and those of the
    acquired that another node should have taken."""

    changes: LeaseChanges
    unwanted: Sequence[str]
    above_share: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.changes.acquire or self.changes.release or self.unwanted)


@dataclass(frozen=True)
class _Leases:
    """The leases of the work by their names, and the nodes. `holders` are instances, without those that are down."""

    all: Mapping[str, str]
    holders: Mapping[str, str]
    nodes: Mapping[str, Node]

    @property
    def up(self) -> list[str]:
        return [each.instance for each in self.nodes.values() if each.state == "up"]


class LeasedShare:
    """The share of one of several nodes: its leases are called `prefix:key`. A piece that another node takes over is
    done by both for a moment rather than by none: this node goes on with what it has given back until another one has
    acquired it, and has had the time to begin. It goes on without the database, too, but stops at once when it finds
    that its lease, which it had not given back, is held by another node. Event loop only."""

    def __init__(self, prefix: str, begun_per_s: float, instance: str, *, takes_part: bool = True) -> None:
        """`begun_per_s`: how many pieces a node begins in a second. `instance`: of this node. `takes_part`: False for
        one that does none of this work."""
        self.prefix: Final = prefix
        self._begun_per_s = begun_per_s
        self._instance = instance
        self._takes_part = takes_part
        self._unclaimed = UnclaimedLeases(instance)
        self._refusals: dict[str, _Refusal] = {}
        self._above_share: set[str] = set()
        """Leases that it holds because another node did not take them."""
        self._names: frozenset[str] = frozenset()
        self._mine: frozenset[str] = frozenset()
        self._given_back: dict[str, float | None] = {}
        """Names of leases that this node has released and whose work it still does; until when, monotonic; None: until
        another node has acquired it."""
        self._holders: dict[str, str] = {}
        self._others_up = False
        self.down_at: datetime | None = None
        """When the first of the other nodes will be down, if it sends no heartbeat, by the database's clock."""
        self.on_change: Callable[[], None] = lambda: None
        self.on_holders: Callable[[], None] = lambda: None

    @property
    def is_changing_hands(self) -> bool:
        """True while this node does work that it has given back."""
        return bool(self._given_back)

    @property
    def held(self) -> int:
        """The number of leases that this node holds."""
        return len(self._mine)

    @property
    def is_handed_over(self) -> bool:
        """True once this node does nothing of the work, or if no other node is up."""
        return not self._others_up or not (self._mine or self._given_back)

    def want(self, keys: Collection[str]) -> None:
        """As `WorkShare.want`."""
        self._names = frozenset(f"{self.prefix}:{key}" for key in keys)

    def does(self, key: str) -> bool:
        """As `WorkShare.does`."""
        name = f"{self.prefix}:{key}"
        return name in self._mine or name in self._given_back

    def holder(self, key: str) -> str | None:
        """As `WorkShare.holder`."""
        return self._holders.get(f"{self.prefix}:{key}")

    def refuse(self, keys: Collection[str]) -> None:
        """As `WorkShare.refuse`: it goes on with them until another node has acquired their leases."""
        now_s = monotonic()
        for name in (f"{self.prefix}:{key}" for key in keys):
            before = self._refusals.get(name)
            if before is None:
                self._refusals[name] = _Refusal(now_s + REFUSED_S)
            elif before.until_s <= now_s and name in self._mine:
                refused_s = min(REFUSED_S * 2**before.times, MAX_REFUSED_S)
                self._refusals[name] = _Refusal(now_s + refused_s, before.times + 1)

    async def update(self, database: Database, *, takes_over: bool) -> None:
        """Acquire and release leases as `fair_share.changes` says. `takes_over`: also those of nodes that are down.
        Raises `StorageUnavailable`."""
        names, now_s = self._names, monotonic()

        def read(conn: sa.Connection) -> _Leases:
            return _read(conn, self.prefix, takes_over)

        def write(conn: sa.Connection) -> tuple[_Leases, _Plan]:
            plan = self._plan(read(conn), names, now_s)
            leases.delete(conn, self._instance, plan.unwanted)
            leases.release(conn, self._instance, plan.changes.release)
            leases.take(conn, plan.changes.acquire, self._instance)
            return read(conn), plan

        found = await database.read(read)
        self._refusals = {
            name: each
            for name, each in self._refusals.items()
            if name in names and each.until_s > now_s - MAX_REFUSED_S
        }
        self._unclaimed.observe(names, found.holders, found.up, now_s)
        plan, changes = self._plan(found, names, now_s), LeaseChanges()
        if not plan.is_empty:
            found, plan = await database.write(write, lock="leases")
            changes = plan.changes
            for name in changes.release:
                if name in self._refusals:
                    self._refusals[name].is_new = False
        self._adopt(found, changes, names, self._instance, monotonic())
        self._above_share = (self._above_share | set(plan.above_share)) & self._mine

    def _plan(self, state: _Leases, names: Collection[str], now_s: float) -> _Plan:
        own, up = self._instance, self._unclaimed.eligible(state.up)
        unwanted = [name for name, holder in state.all.items() if holder == own and name not in names]
        if not self._takes_part or own not in state.up:
            up = [each for each in up if each != own]
            return _Plan(fair_share.changes(names, state.holders, up, own), unwanted)
        refused = {name for name, each in self._refusals.items() if each.until_s > now_s}
        given_up = [
            name for name in sorted(refused)
            if self._refusals[name].is_new and state.holders.get(name) == own and len(up) > 1
        ]  # fmt: skip
        holders = {name: holder for name, holder in state.holders.items() if name not in given_up}
        made = fair_share.changes(
            names, holders, up, own, may_move=not self._given_back, refused=refused, kept=self._above_share
        )
        free = set(names) - state.holders.keys() - set(made.acquire)
        above_share = [name for name in self._unclaimed.overdue(refused, state.up, now_s) if name in free]
        return _Plan(LeaseChanges([*made.acquire, *above_share], [*given_up, *made.release]), unwanted, above_share)

    def _adopt(
        self, found: _Leases, changes: LeaseChanges, names: Collection[str], instance: str, now_s: float
    ) -> None:
        before, did, held = self._mine, self._mine | self._given_back.keys(), self._holders
        self._mine = frozenset(name for name, holder in found.holders.items() if holder == instance and name in names)
        self._holders = {name: found.nodes[holder].name for name, holder in found.holders.items()}
        self._others_up = any(each != instance for each in found.up)
        seen = [each.last_seen_at for each in found.nodes.values() if not each.is_down and each.instance != instance]
        self.down_at = min(seen) + DOWN_AFTER if seen else None
        taken_away = [name for name in before - self._mine if name in found.holders and name not in changes.release]
        self._given_back.update({name: None for name in before - self._mine if name not in taken_away})
        self._given_back = {
            name: until_s
            for name, until_s in self._given_back.items()
            if name in names and name not in self._mine and (until_s is None or until_s > now_s)
        }
        acquired = [name for name, until_s in self._given_back.items() if until_s is None and name in found.holders]
        until_s = now_s + GRACE_S + len(acquired) / self._begun_per_s
        self._given_back.update(dict.fromkeys(acquired, until_s))
        if taken_away:
            log.warning("node.work_taken_away", work=self.prefix, count=len(taken_away))
        if changes.acquire or changes.release:
            log.info(
                "node.work_moved",
                work=self.prefix,
                acquired=len(changes.acquire),
                released=len(changes.release),
                held=len(self._mine),
                total=len(names),
            )
        if did != self._mine | self._given_back.keys():
            self.on_change()
        elif self._holders != held:
            self.on_holders()


def _read(conn: sa.Connection, prefix: str, takes_over: bool) -> _Leases:
    found = {each.instance: each for each in nodes.all_of(conn)}
    all_leases = leases.holders(conn, f"{prefix}:")
    held = {
        name: holder
        for name, holder in all_leases.items()
        if holder in found and not (takes_over and found[holder].is_down)
    }
    return _Leases(all_leases, held, found)
