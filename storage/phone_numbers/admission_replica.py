"""Admission replica: copies in memory of the rows that the admission of an inbound call reads, in tables of SQLite, so
that the same queries run while the database is away. Secrets in them are encrypted, as in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy.pool import StaticPool

from storage import tables
from storage.database.database import Database
from storage.database.errors import StorageUnavailable

MAX_ROWS: Final = 50_000
"""Numbers, agents and tools of all organizations that are copied; with more there is no replica."""
BATCH_ROWS: Final = 100
"""Rows that are read and stored at once, because agents may be large."""
REFRESH_S: Final = 30.0
"""Interval of refreshes without a change: balances, which change with each call, are not notified."""
MIN_PAUSE_S: Final = 1.0
"""Time between two refreshes."""

_STAMPED: Final = (tables.agents, tables.tools, tables.phone_numbers)
"""Tables of which only new rows are copied: by id, with the time of the last change."""
_WHOLE: Final = (
    tables.organizations,
    tables.facts,
    tables.trunk_grants,
    tables.phone_number_sources,
    tables.webhook_endpoints,
)
COPIED: Final = frozenset(each.name for each in (*_STAMPED, *_WHOLE))
Stamps = Mapping[str, Mapping[str, datetime]]
Rows = Mapping[str, list[dict[str, Any]]]

log = structlog.get_logger()
T = TypeVar("T")


class AdmissionReplica:
    """`run` keeps it up to date. Event loop only."""

    def __init__(self, database: Database) -> None:
        self._database: Final = database
        self._engine: Final = sa.create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="admission replica")
        self._stamps: dict[str, dict[str, datetime]] = {each.name: {} for each in _STAMPED}
        self._all_again = True
        self._changed = asyncio.Event()
        self._too_large = False
        self.is_complete = False
        """True once everything was copied."""

    async def close(self) -> None:
        """End its thread."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        self._engine.dispose()

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Returns the result of `work` on the copied tables; all others are empty. Raises what `work` raises, and
        `StorageUnavailable` before everything was copied."""
        if not self.is_complete:
            raise StorageUnavailable("the numbers were not copied yet", unreachable=True)
        return await self._on_thread(work)

    def on_change(self, changed: frozenset[str] | None) -> None:
        """Refresh it if these tables are among its own; None: all of them may have changed."""
        if changed is None:
            self._all_again = True
        if changed is None or changed & COPIED:
            self._changed.set()

    async def run(self) -> None:
        """Refresh it after each change until cancelled."""
        while True:
            self._changed.clear()
            try:
                await self.refresh()
            except StorageUnavailable as error:
                log.debug("admission_replica.not_refreshed", cause=error.cause)
            await asyncio.sleep(MIN_PAUSE_S)
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        """Copy what has changed. Raises `StorageUnavailable`."""
        all_again = self._all_again
        stamps, whole = await self._database.read(_read_stamps)
        if self._is_too_large(stamps):
            self.is_complete = False
            return
        if not any(self._stamps.values()):
            await self._on_thread(tables.metadata.create_all)
        for table in _STAMPED:
            new, known = stamps[table.name], {} if all_again else self._stamps[table.name]
            await self._remove(table, [each for each in self._stamps[table.name] if each not in new])
            await self._copy(table, [each for each, at in new.items() if known.get(each) != at])
            self._stamps[table.name] = dict(new)
        await self._on_thread(lambda conn: _replace_whole(conn, whole))
        self._all_again = self._all_again and not all_again
        if not self.is_complete:
            log.info("admission_replica.complete", numbers=len(self._stamps["phone_numbers"]))
        self.is_complete = True

    def _is_too_large(self, stamps: Stamps) -> bool:
        count = sum(map(len, stamps.values()))
        was_too_large, self._too_large = self._too_large, count > MAX_ROWS
        if self._too_large and not was_too_large:
            log.warning("admission_replica.too_large", rows=count, most=MAX_ROWS)
        return self._too_large

    async def _copy(self, table: sa.Table, ids: list[str]) -> None:
        for at in range(0, len(ids), BATCH_ROWS):
            some = ids[at : at + BATCH_ROWS]
            query = sa.select(table).where(table.c.id.in_(some))
            rows = await self._database.read(lambda conn: [dict(each) for each in conn.execute(query).mappings()])  # noqa: B023
            await self._on_thread(lambda conn: _replace_rows(conn, table, some, rows))  # noqa: B023

    async def _remove(self, table: sa.Table, ids: list[str]) -> None:
        for at in range(0, len(ids), BATCH_ROWS):
            some = ids[at : at + BATCH_ROWS]
            await self._on_thread(lambda conn: _replace_rows(conn, table, some, []))  # noqa: B023

    async def _on_thread(self, work: Callable[[sa.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work)

    def _transaction(self, work: Callable[[sa.Connection], T]) -> T:
        with self._engine.begin() as conn:
            return work(conn)


def _read_stamps(conn: sa.Connection) -> tuple[Stamps, Rows]:
    """The times of all rows of the stamped tables, of agents those that numbers have; and the rows of the others."""
    agents, numbers, facts = tables.agents, tables.phone_numbers, tables.facts
    stamps: dict[str, dict[str, datetime]] = {}
    for table in _STAMPED:
        query = sa.select(table.c.id, table.c.updated_at)
        if table is agents:
            query = query.where(agents.c.id.in_(sa.select(numbers.c.agent_id).where(numbers.c.agent_id.is_not(None))))
        stamps[table.name] = {row.id: row.updated_at for row in conn.execute(query)}
    whole = {}
    for table in _WHOLE:
        rows = sa.select(table)
        if table is facts:
            rows = rows.where(facts.c.name == "demo_organization")
        whole[table.name] = [dict(each) for each in conn.execute(rows).mappings()]
    return stamps, whole


def _replace_rows(conn: sa.Connection, table: sa.Table, ids: Collection[str], rows: list[dict[str, Any]]) -> None:
    conn.execute(sa.delete(table).where(table.c.id.in_(ids)))
    if rows:
        conn.execute(sa.insert(table), rows)


def _replace_whole(conn: sa.Connection, whole: Rows) -> None:
    for table in _WHOLE:
        conn.execute(sa.delete(table))
        if whole[table.name]:
            conn.execute(sa.insert(table), whole[table.name])
