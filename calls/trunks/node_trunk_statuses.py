"""The statuses of registrations on all nodes: each stores those of its own trunks, and reads the others'."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final, cast

import structlog

from sipcore.trunks.trunk import TrunkState, TrunkStatus
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.nodes import trunk_statuses
from storage.nodes.trunk_statuses import StoredTrunkStatus

EVERY_S: Final = 2.0
"""Between two looks at the statuses of this node and of the others."""
LOCK: Final = "trunk statuses"
ReadOwn = Callable[[], Mapping[str, TrunkStatus]]

log = structlog.get_logger()


class NodeTrunkStatuses:
    """For the event loop, except `of`. `read_own` returns the statuses of the trunks that this node registers, by their
    keys; `on_change` is called when those of other nodes have changed."""

    def __init__(self, database: Database, node: str, read_own: ReadOwn, on_change: Callable[[], None]) -> None:
        self._database = database
        self._node = node
        self._read_own = read_own
        self._on_change = on_change
        self._stored: dict[str, TrunkStatus] = {}
        self._others: dict[str, StoredTrunkStatus] = {}
        self._read_until: datetime | None = None

    def of(self, trunk: str, node: str) -> TrunkStatus | None:
        """Returns the status of a trunk that another node registers; None before that has stored it. Any thread."""
        found = self._others.get(trunk)
        if found is None or found.node != node:
            return None
        detail = f"{found.detail}; by node {node}" if found.detail else f"by node {node}"
        return TrunkStatus(cast(TrunkState, found.state), f"{detail}, as of {found.updated_at:%H:%M:%S}Z", found.since)

    async def run(self) -> None:
        """Store and read until cancelled."""
        while True:
            try:
                await self._store()
                await self._read()
            except StorageUnavailable as error:
                log.debug("trunks.statuses_not_stored", cause=error.cause)
            await asyncio.sleep(EVERY_S)

    async def _store(self) -> None:
        """Store the statuses that have changed."""
        own = dict(self._read_own())
        changed = {key: status for key, status in own.items() if self._stored.get(key) != status}
        gone = self._stored.keys() - own.keys()
        if changed:
            rows = [
                StoredTrunkStatus(key, self._node, status.state, status.detail, status.since, datetime.max)
                for key, status in changed.items()
            ]
            await self._database.write(partial(trunk_statuses.store, statuses=rows), lock=LOCK)
            self._stored.update(changed)
        if gone:
            delete = partial(trunk_statuses.delete, node=self._node, trunks=gone)
            await self._database.write(delete, lock=LOCK)
            for key in gone:
                del self._stored[key]

    async def _read(self) -> None:
        read = partial(trunk_statuses.of_other_nodes, node=self._node, after=self._read_until)
        found = await self._database.read(read)
        changed = {each.trunk: each for each in found if self._others.get(each.trunk) != each}
        if changed:
            self._others.update(changed)
            latest = max(each.updated_at for each in found)
            self._read_until = latest if self._read_until is None else max(latest, self._read_until)
            self._on_change()
