"""The queue of outbound calls: those that were stored for this node, and those that other nodes have given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
import structlog

from calls.active_calls import ActiveCalls
from calls.session.outbound_call import OutboundCall
from storage.calls import queued_calls
from storage.calls.queued_calls import QueuedCall
from storage.database import own_node
from storage.database.database import Database
from storage.database.duplicate_filter import DuplicateFilter
from storage.database.errors import StorageUnavailable
from storage.nodes import nodes

ACQUIRED_AT_ONCE: Final = 20
"""Queued calls that a node takes in one transaction, so that several nodes share those of one that is gone."""
ENDED_AT_ONCE: Final = 1000
"""Queued calls without a node that the last node ends when it drains."""

log = structlog.get_logger()


class OutboundQueue:
    """Starts queued calls. `start` makes a call active and runs it in a task of its own; None: no call is placed.
    `free_places` returns how many more calls this process may have, 0 while it drains; `spawn` runs a coroutine in a
    task. Event loop only."""

    def __init__(
        self,
        database: Database,
        active: ActiveCalls,
        start: Callable[[QueuedCall], None] | None,
        free_places: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._database = database
        self._active = active
        self._start = start
        self._free_places = free_places
        self._spawn = spawn
        self._lock = asyncio.Lock()
        self._check_scheduled = False
        self._is_draining = False
        self._duplicates = DuplicateFilter()
        self._read_change_number: int | None = None
        """Of the database, when the queued calls were read last."""

    def check(self) -> None:
        """Start the queued calls that were stored; returns at once."""
        if not self._check_scheduled:
            self._check_scheduled = True
            self._spawn(self.start_all())

    def check_if_changed(self) -> None:
        """Start the queued calls if anything was stored since they were read last; returns at once."""
        change_number = self._database.change_number()
        if change_number is None or change_number != self._read_change_number:
            self.check()

    async def drain(self) -> None:
        """Give the queued calls back, from now on also those that are stored later: a request that was admitted before
        the drain may store one meanwhile."""
        self._is_draining = True
        await self.start_all()

    async def start_all(self) -> None:
        """Start the queued calls. While the database cannot be read that is logged once."""
        self._check_scheduled = False
        if self._is_draining:
            await self._give_back()
        try:
            await self.run()
            self._duplicates.reset()
        except StorageUnavailable as error:
            write = log.debug if self._duplicates.is_duplicate(error) else log.error
            write("calls.queue_not_read", cause=error.cause)

    async def run(self, wanted: str | None = None) -> None:
        """Run every queued call in a task of its own. Readers take turns, so that a call that ended after its row was
        read is not started again. Calls that other nodes have given back are acquired, as far as there are places; the
        one that is `wanted` also without. Raises `StorageUnavailable`."""
        if self._start is None:
            return
        async with self._lock:
            has_free = await self._run_waiting(self._start)
            if has_free and wanted is not None:
                acquire = partial(queued_calls.acquire, limit=1, only=wanted)
                if await self._database.write(acquire, lock=queued_calls.LOCK):
                    await self._run_waiting(self._start)
                return
            while has_free:
                room = min(self._free_places(), ACQUIRED_AT_ONCE)
                if room <= 0:
                    return
                acquired = await self._database.write(partial(_acquire_queued, limit=room), lock=queued_calls.LOCK)
                if not acquired:  # other nodes have taken them, or take this one for down
                    return
                log.info("calls.queue_acquired", calls=acquired)
                has_free = await self._run_waiting(self._start)

    async def _run_waiting(self, start: Callable[[QueuedCall], None]) -> bool:
        """Run this node's queued calls that do not run yet. Returns True if there are some without a node."""
        change_number = self._database.change_number()  # before the read: what is stored after it counts
        known = self._active.known_ids()

        def read(conn: sa.Connection) -> tuple[list[QueuedCall], bool]:
            return queued_calls.waiting(conn, known), queued_calls.has_free(conn)

        waiting, has_free = await self._database.read(read, priority="calls")
        for queued in waiting:
            start(queued)
            log.info("call.queued", call_id=queued.call.id, agent=queued.call.agent_id)
        self._read_change_number = change_number
        return has_free

    async def _give_back(self) -> None:
        """Give the queued calls that are not dialled to the other nodes, if one of them is up and takes them;
        otherwise acquire those that have no node, to end them."""
        if self._database.is_sqlite:
            return
        try:
            given_back = await self._database.write(_give_back_own, lock=queued_calls.LOCK)
        except StorageUnavailable as error:
            log.error("calls.queue_not_given_back", cause=error.cause)
            return
        for call in self._active.all():
            if call.call.id in given_back and isinstance(call, OutboundCall):
                call.give_up()
        if given_back:
            log.info("calls.queue_given_back", calls=len(given_back), nodes=[self._database.node])


def _acquire_queued(conn: sa.Connection, limit: int) -> int:
    own = nodes.live_node(conn, own_node.filter_of(conn) or "")
    return 0 if own is None or own.state != "up" else queued_calls.acquire(conn, limit)


def _give_back_own(conn: sa.Connection) -> list[str]:
    """Returns the ids of the calls that another node dials now. A node of an older version does not."""
    own = own_node.filter_of(conn)
    found = nodes.all_of(conn)
    version = next((each.release for each in found if each.name == own), ())
    if own is None:
        return []
    if any(each.state == "up" and each.name != own and each.release >= version for each in found):
        return queued_calls.give_back(conn, (own,))
    queued_calls.acquire(conn, ENDED_AT_ONCE)
    return []
