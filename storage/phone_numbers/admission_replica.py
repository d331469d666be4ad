"""Admission replica: copies in memory of the rows that the admission of an inbound call reads, in tables of SQLite, so
that the same queries run while the database is away. Secrets in them are encrypted, as in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy.pool import StaticPool

from storage import tables
from storage.database.database import Database
from storage.database.errors import StorageUnavailable

MAX_ROWS: Final = 50_000
"""Rows that are copied; with more there is no replica."""
MAX_BYTES: Final = 256 << 20
"""Size of the copy; when it is larger there is no replica."""
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
_METADATA: Final = sa.MetaData()
"""All tables, without constraints but their keys: rows are copied in several steps, between which they may not hold."""
for _table in tables.metadata.sorted_tables:
    _columns = [
        sa.Column(each.name, each.type, primary_key=each.primary_key, autoincrement=False) for each in _table.columns
    ]
    sa.Table(_table.name, _METADATA, *_columns)
sa.Index("ix_replica_number", _METADATA.tables["phone_numbers"].c.number)
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
            except Exception as error:
                log.error("admission_replica.failed", error=repr(error), exc_info=error)
                self._all_again = True
            await asyncio.sleep(MIN_PAUSE_S)
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        """Copy what has changed. Raises `StorageUnavailable`."""
        all_again, self._all_again = self._all_again, False
        try:
            stamps, whole = await self._database.read(_read_stamps)
            if not await self._refresh(stamps, whole, all_again):
                return
        except BaseException:
            self._all_again = self._all_again or all_again
            raise
        if not self.is_complete:
            log.info("admission_replica.complete", numbers=len(self._stamps["phone_numbers"]))
        self.is_complete = True

    async def _refresh(self, stamps: Stamps, whole: Rows, all_again: bool) -> bool:
        """Returns False, with an empty replica, if there is too much to copy."""
        rows = sum(map(len, (*stamps.values(), *whole.values())))
        if rows > MAX_ROWS:
            return await self._give_up(rows=rows, most=MAX_ROWS)
        await self._on_thread(_METADATA.create_all)
        for table in _STAMPED:
            known, new = self._stamps[table.name], stamps[table.name]
            removed, changed = await self._on_thread(lambda _: _changes(known, new))  # noqa: B023
            changed = list(new) if all_again else changed
            await self._remove(table, removed)
            await self._copy(table, changed)
            self._stamps[table.name] = dict(new)
            if (size := await self._on_thread(_size)) > MAX_BYTES:
                return await self._give_up(mib=size >> 20, most=MAX_BYTES >> 20)
        await self._on_thread(lambda conn: _replace_whole(conn, whole))
        self._too_large = False
        return True

    async def _give_up(self, **why: int) -> bool:
        if not self._too_large:
            log.warning("admission_replica.too_large", **why)
        self._too_large, self.is_complete, self._all_again = True, False, True
        self._stamps = {each.name: {} for each in _STAMPED}
        await self._on_thread(_METADATA.drop_all)
        return False

    async def _copy(self, table: sa.Table, ids: list[str]) -> None:
        for at in range(0, len(ids), BATCH_ROWS):
            some = ids[at : at + BATCH_ROWS]
            rows = await self._database.read(partial(_read_rows, table=table, ids=some))
            await self._on_thread(partial(_replace_rows, table=table, ids=some, rows=rows))

    async def _remove(self, table: sa.Table, ids: list[str]) -> None:
        for at in range(0, len(ids), BATCH_ROWS):
            some = ids[at : at + BATCH_ROWS]
            await self._on_thread(partial(_replace_rows, table=table, ids=some, rows=[]))

    async def _on_thread(self, work: Callable[[sa.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work)

    def _transaction(self, work: Callable[[sa.Connection], T]) -> T:
        with self._engine.begin() as conn:
            return work(conn)


def _changes(known: Mapping[str, datetime], new: Mapping[str, datetime]) -> tuple[list[str], list[str]]:
    """The ids of the rows that are gone, and of those that are to be copied."""
    return [each for each in known if each not in new], [each for each, at in new.items() if known.get(each) != at]


def _size(conn: sa.Connection) -> int:
    """The bytes of the copy."""

    def pragma(name: str) -> int:
        return int(conn.exec_driver_sql(f"PRAGMA {name}").scalar_one())

    return (pragma("page_count") - pragma("freelist_count")) * pragma("page_size")


def _read_rows(conn: sa.Connection, table: sa.Table, ids: Collection[str]) -> list[dict[str, Any]]:
    return [dict(each) for each in conn.execute(sa.select(table).where(table.c.id.in_(ids))).mappings()]


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
