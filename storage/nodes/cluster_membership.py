"""Membership of one of several nodes: heartbeats, the nodes that are down, and leases on work that one node does for
all."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection
from contextvars import Context, copy_context
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import uuid4

import sqlalchemy as sa
import structlog

from config import clock
from config.clock import utc_now
from config.errors import StartupError
from storage.database.database import Database, transaction_guard
from storage.database.errors import StorageUnavailable
from storage.database.postgresql.locks import HeartbeatLock
from storage.nodes import leases, nodes
from storage.nodes.clock_reference import ClockReference, ClockSample
from storage.nodes.fair_share import fair_share
from storage.nodes.leases import Lease, LeaseLost
from storage.nodes.membership import NodeHealth, NodeLoad, Work, starting_load
from storage.nodes.nodes import DOWN_AFTER, Node, NodeSuperseded
from storage.nodes.work_share import LeasedShare, WorkShare

HEARTBEAT_S: Final = 2.0
"""Interval of heartbeats, seconds."""
VALID_S: Final = DOWN_AFTER.total_seconds() - 1
"""How long a heartbeat holds for this node, seconds after it was begun: shorter than for the others, so that it stops
before another one begins."""
HAND_OVER_S: Final = 15.0
"""How long a node that drains waits until others have taken its shares over."""
HAND_OVER_CHECK_S: Final = 0.5
"""Interval of heartbeats while work changes hands."""
DOWN_MARGIN_S: Final = 0.1
"""How long after the end of a silent node's time its leases are looked at."""
RETRY_S: Final = 0.5
"""Interval of heartbeats while the database does not take them, seconds."""
MAX_GAP_S: Final = HEARTBEAT_S + 1
"""Time between the beginnings of two heartbeats of this node after which it takes the database for having been away, so
that the others may not have sent theirs either, seconds. So it does after a heartbeat that ended when the last one did
not hold any more."""
MAX_CLOCK_DIFFERENCE_S: Final = 1.0
"""A larger difference between the clocks of this machine and of the database is logged, seconds."""

log = structlog.get_logger()


class ClusterMembership:
    """One of several nodes."""

    def __init__(self, database: Database, name: str, url: str | None, version: str) -> None:
        self.name: Final = name
        self._database = database
        started_at = utc_now()
        self._node = Node(name, str(uuid4()), url, version, "up", 0, 0, started_at, started_at)
        self.report: Callable[[], NodeLoad] = starting_load
        self.on_down: Callable[[Collection[str]], Awaitable[Any]] | None = None
        self._closing: asyncio.Future[None] = _nothing()
        self._clock = ClockReference()
        self._valid_until_s = 0.0
        self._last_heartbeat_s = float("-inf")
        self._failing_since_s: float | None = None
        self._outage_s = 0.0
        """How long past outages of the database lasted in all, seconds."""
        self._present_since_s = 0.0
        """Since when heartbeats have followed each other without a gap, monotonic."""
        self._closed: set[tuple[str, str]] = set()
        """Names and instances of down nodes whose calls are closed."""
        self._held: dict[str, Lease] = {}
        self._wanted: set[str] = set()
        self._shares: list[LeasedShare] = []
        self._up = [self._node.instance]
        """Instances of the nodes that were up when they were read last, in order."""
        self._changed = asyncio.Condition()
        self._woken = asyncio.Event()

    @property
    def dead_nodes_at_start(self) -> Collection[str] | None:
        """As `Membership.dead_nodes_at_start`: its own, from before; survivors close those of other nodes."""
        return (self.name,)

    def nodes(self, conn: sa.Connection) -> list[Node]:
        """As `Membership.nodes`."""
        return nodes.all_of(conn)

    def health(self) -> NodeHealth:
        """As `Membership.health`."""
        now_s, failing_since_s = time.monotonic(), self._failing_since_s
        outage_s = self._outage_s + (0.0 if failing_since_s is None else now_s - failing_since_s)
        leases_held = len(self._held) + sum(each.held for each in self._shares)
        return NodeHealth(leases_held, now_s - self._last_heartbeat_s, outage_s)

    @property
    def instance(self) -> str:
        """As `Membership.instance`."""
        return self._node.instance

    @property
    def is_valid(self) -> bool:
        """True while no other node takes this one for down."""
        return time.monotonic() < self._valid_until_s

    def holds(self, name: str) -> bool:
        """True while this node has the lease."""
        return name in self._held and self.is_valid

    async def join(self) -> None:
        """Store the first heartbeat, once a killed instance of this node is down. Raises `StartupError` if another
        process sends heartbeats with its name, and `StorageUnavailable`."""
        first = before = await self._database.read(partial(nodes.live_node, name=self.name))
        while before is not None and first is not None:
            if (before.instance, before.last_seen_at) != (first.instance, first.last_seen_at):
                raise StartupError(f"another node named {self.name} uses this database: set [node] name")
            await asyncio.sleep(HEARTBEAT_S / 4)
            before = await self._database.read(partial(nodes.live_node, name=self.name))
        await self._heartbeat()

    def on_load(self) -> None:
        """As `Membership.on_load`."""
        if self.report().state != self._node.state:
            self._woken.set()

    async def leave(self) -> None:
        """Give the leases back and report that the node is down."""
        clock.set_source(clock.machine_time)
        self._node = replace(self._node, state="down", calls=0)

        def write(conn: sa.Connection) -> None:
            leases.release(conn, self._node.instance)
            nodes.store_heartbeat(conn, self._node)

        with contextlib.suppress(StorageUnavailable, NodeSuperseded, TimeoutError):
            async with asyncio.timeout(HEARTBEAT_S):
                await self._database.write(write, lock="leases")

    async def run(self) -> None:
        """Send heartbeats; acquire wanted leases; report nodes that are down."""
        while True:
            try:
                load = self.report()
                self._node = replace(
                    self._node, state=load.state, calls=load.calls, capacity=load.capacity, report=load.report
                )
                await self._heartbeat()
                await self._acquire()
                await self._update_shares()
                await self._close_down_nodes()
            except StorageUnavailable as error:
                if self._failing_since_s is None:
                    log.warning("node.no_heartbeat", cause=error.cause)
                    self._failing_since_s = time.monotonic()
            except NodeSuperseded as error:
                log.error("node.superseded", why=str(error), remedy="stop this server, or give it another [node] name")
            except Exception as error:
                log.error("node.heartbeat_failed", error=repr(error), exc_info=error)
            await self._announce()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s):
                    await self._woken.wait()
            self._woken.clear()

    async def run_alone(self, name: str, work: Work) -> None:
        """As `Membership.run_alone`: the work is cancelled before another node may begin with it, and each of its write
        transactions holds the lease: one that begins later raises `LeaseLost`, and another node gets the lease after
        one that is under way."""
        self._wanted.add(name)
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self.holds(name))
            log.info("node.lease_acquired", lease=name)
            running = asyncio.create_task(work(), name=name, context=_with_guard(self._held[name]))
            try:
                await self._until_lost(name, running)
            finally:
                running.cancel()
                await asyncio.wait((running,))
            if not running.cancelled() and not _is_lease_lost(running.exception()):
                running.result()
                return
            self._held.pop(name, None)  # until it is read again
            log.warning("node.lease_lost", lease=name)

    def share(self, prefix: str, begun_per_s: float, *, takes_part: bool = True) -> WorkShare:
        """As `Membership.share`."""
        share = LeasedShare(prefix, begun_per_s, self.instance, takes_part=takes_part)
        self._shares.append(share)
        return share

    def share_of(self, limit: int) -> int:
        """As `Membership.share_of`."""
        return fair_share(limit, self._up, self.instance)

    async def hand_over(self) -> None:
        """As `Membership.hand_over`."""
        self._woken.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S), self._changed:
                await self._changed.wait_for(lambda: all(each.is_handed_over for each in self._shares))

    async def _until_lost(self, name: str, running: asyncio.Task[None]) -> None:
        while self.holds(name) and not running.done():
            await asyncio.wait((running,), timeout=max(0.0, min(0.5, self._valid_until_s - time.monotonic())))

    async def _heartbeat(self) -> None:
        begun_s = time.monotonic()
        sample = await self._database.write(
            partial(nodes.store_heartbeat, node=self._node), lock=HeartbeatLock(self.name)
        )
        self._follow(sample)
        ended_s = time.monotonic()
        if begun_s - self._last_heartbeat_s > MAX_GAP_S or ended_s >= self._valid_until_s:
            self._present_since_s = ended_s
        self._last_heartbeat_s = begun_s
        self._valid_until_s = begun_s + VALID_S
        if self._failing_since_s is not None:
            self._outage_s += begun_s - self._failing_since_s
            log.info("node.heartbeats_again", away_s=round(begun_s - self._failing_since_s, 1))
            self._failing_since_s = None

    def _follow(self, sample: ClockSample) -> None:
        """Take the database's time for the server's."""
        was_known, jump_s = self._clock.is_known, self._clock.add(sample)
        if jump_s:
            log.warning("node.clock_jumped", seconds=round(jump_s, 3))
        if self._clock.is_known and not was_known:
            ahead_s = (clock.machine_time() - self._database_now()).total_seconds()
            if abs(ahead_s) > MAX_CLOCK_DIFFERENCE_S:
                log.warning("node.clock_differs", seconds=round(ahead_s, 3))
            clock.set_source(self._database_now)

    def _database_now(self) -> datetime:
        return self._clock.now(time.monotonic())

    async def _acquire(self) -> None:
        """Read the leases that are held, and acquire the free ones among the wanted."""
        instance, wanted = self._node.instance, set(self._wanted)

        def work(conn: sa.Connection) -> list[Lease]:
            leases.acquire(conn, wanted, instance)
            return leases.held_by(conn, instance)

        if wanted:
            held = await self._database.read(partial(_held_and_free, wanted=wanted, instance=instance))
            if held is None:
                held = await self._database.write(work, lock="leases")
            self._held = {each.name: each for each in held}

    async def _update_shares(self) -> None:
        for share in self._shares:
            await share.update(self._database, takes_over=self.sees_others)

    @property
    def _pause_s(self) -> float:
        """Seconds until the next heartbeat: sooner while work changes hands, and when a silent node will be down."""
        if self._failing_since_s is not None:
            return RETRY_S
        if any(each.is_changing_hands for each in self._shares):
            return HAND_OVER_CHECK_S
        now = utc_now()
        silent_s = [(each.down_at - now).total_seconds() for each in self._shares if each.down_at is not None]
        return min([HEARTBEAT_S, *(max(seconds, 0.0) + DOWN_MARGIN_S for seconds in silent_s)])

    @property
    def sees_others(self) -> bool:
        """False in an outage of the database, in which no node sends heartbeats, and for a while after it: the others
        may not have done so again."""
        if self._failing_since_s is not None or not self.is_valid:
            return False
        return time.monotonic() - self._present_since_s >= DOWN_AFTER.total_seconds()

    async def _close_down_nodes(self) -> None:
        if self.on_down is None or not self._closing.done() or not self.sees_others:
            return
        found = await self._database.read(nodes.all_of)
        self._up = sorted({self.instance, *(each.instance for each in found if each.state == "up")})
        down = {(each.name, each.instance) for each in found if each.is_down and each.name != self.name}
        self._closed &= down
        left = down - self._closed
        if left and self.is_valid:
            log.warning("node.down", nodes=sorted(name for name, _ in left))
            self._closing = asyncio.create_task(self._close(self.on_down, left), name="calls of dead nodes")

    async def _close(
        self, on_down: Callable[[Collection[str]], Awaitable[Any]], left: Collection[tuple[str, str]]
    ) -> None:
        """In a task of its own, so that heartbeats go on; what fails is tried again."""
        try:
            await on_down([name for name, _ in left])
        except Exception as error:
            log.error("node.calls_not_closed", error=repr(error), exc_info=error)
        else:
            self._closed.update(left)

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _held_and_free(conn: sa.Connection, wanted: Collection[str], instance: str) -> list[Lease] | None:
    """The leases of the node; None if some of the wanted ones are free."""
    return None if leases.has_free(conn, wanted) else leases.held_by(conn, instance)


def _is_lease_lost(error: BaseException | None) -> bool:
    """True also for the error of a task group whose tasks have lost the lease."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(LeaseLost)[1] is None
    return isinstance(error, LeaseLost)


def _with_guard(lease: Lease) -> Context:
    """A copy of this context, in which each write transaction holds the lease."""
    context = copy_context()
    context.run(transaction_guard.set, partial(leases.require, lease=lease))
    return context


def _nothing() -> asyncio.Future[None]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
