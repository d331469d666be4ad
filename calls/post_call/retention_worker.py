"""RetentionWorker: removes recordings, transcripts and calls after their retention periods, and the files of recordings
without a row, in small transactions, so that other writers wait only milliseconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import sqlalchemy as sa
import structlog

from calls.periodic_worker import PeriodicWorker
from calls.post_call.recording_remover import RecordingRemover
from config.clock import utc_now
from storage.calls import deletion
from storage.calls.deletion import RetentionCutoffs
from storage.database.database import Database
from storage.nodes import nodes
from storage.recording_store.recording_files import RecordingFiles

FORGET_NODES_AFTER: Final = timedelta(days=30)
"""How long a node that is down is listed."""
CHECK_EVERY_S: Final = 60.0
"""Interval of full runs."""
TARGET_TRANSACTION_S: Final = 0.005
"""The intended duration of a transaction."""
FIRST_BATCH: Final = 8
MAX_BATCH: Final = 400
"""Calls in one transaction."""
WAL_ATTEMPTS: Final = 5
WAL_RETRY_S: Final = 0.2

Drop = Callable[..., int]
"""Takes a connection and `limit`; returns the number of calls whose data it removed."""
log = structlog.get_logger()


@dataclass
class RemovedCounts:
    """Counts of a run; `longest_s` is the duration of its longest transaction."""

    recordings: int = 0
    transcripts: int = 0
    calls: int = 0
    files: int = 0
    longest_s: float = 0.0

    @property
    def rows(self) -> int:
        """Rows that were changed or deleted."""
        return self.recordings + self.transcripts + self.calls


class RetentionWorker:
    """`run` works until it is cancelled; the next start continues."""

    def __init__(self, database: Database, data_dir: Path, recordings: RecordingFiles | None = None) -> None:
        """Without `recordings` all are in `data_dir`."""
        self._database = database
        self.recording_remover: Final = RecordingRemover(database, recordings or RecordingFiles(data_dir))
        self._worker = PeriodicWorker("retention.storage_trouble", CHECK_EVERY_S, CHECK_EVERY_S, "warning")
        self._wal_is_empty = False
        """True if the write-ahead log has no removed data; False at first, because a dead process may have left
        some."""

    def wake(self) -> None:
        """Remove files now, because calls were removed."""
        self._worker.wake()
        self.recording_remover.wake()

    def request_wal_truncation(self) -> None:
        """Truncate the write-ahead log now, because other code has removed stored data."""
        self._wal_is_empty = False
        self.wake()

    async def wait_idle(self) -> None:
        """Wait until everything due was removed."""
        await self._worker.wait_idle()

    async def run(self) -> None:
        """Remove due data now and every minute; files also whenever `wake` is called."""
        await self._worker.run(self._work)

    async def _work(self) -> bool:
        if self._worker.is_due:
            await self.run_once(utc_now())
        else:
            await self._finish(RemovedCounts())
        return self.recording_remover.is_complete

    async def run_once(self, now: datetime) -> RemovedCounts:
        """Remove everything that is due at `now`. Raises `StorageUnavailable`."""
        removed = RemovedCounts()
        for due in await self._database.read(partial(deletion.retention_cutoffs, now=now)):
            await self._drop(due, removed)
        await self._forget_nodes()
        await self._finish(removed)
        return removed

    async def _forget_nodes(self) -> None:
        """Delete the rows of nodes that were taken away."""
        if self._database.is_sqlite:
            return

        def forget(conn: sa.Connection) -> int:
            return nodes.forget(conn, nodes.database_time(conn) - FORGET_NODES_AFTER)

        if forgotten := await self._database.write(forget, lock="leases", deferrable=True):
            log.info("node.forgotten", nodes=forgotten)

    async def _finish(self, removed: RemovedCounts) -> None:
        """Remove files and truncate the write-ahead log after rows were removed."""
        removed.files += await self.recording_remover.remove_files()
        await self.recording_remover.remove_for_other_nodes()
        if removed.rows or removed.files:
            self._wal_is_empty = False
        if not self._wal_is_empty:
            self._wal_is_empty = await self._truncate_wal()
        if removed.rows or removed.files:
            log.info("retention.removed", **{**asdict(removed), "longest_s": round(removed.longest_s, 3)})

    async def _drop(self, due: RetentionCutoffs, removed: RemovedCounts) -> None:
        if due.calls is not None:
            drop = partial(deletion.delete_calls, organization_id=due.organization_id, before=due.calls)
            removed.calls += await self._in_batches(drop, due.organization_id, removed)
        if due.recordings is not None:
            drop = partial(deletion.delete_recordings, organization_id=due.organization_id, before=due.recordings)
            removed.recordings += await self._in_batches(drop, due.organization_id, removed)
        if due.transcripts is not None:
            drop = partial(deletion.delete_transcripts, organization_id=due.organization_id, before=due.transcripts)
            removed.transcripts += await self._in_batches(drop, due.organization_id, removed)

    async def _in_batches(self, drop: Drop, organization_id: str, removed: RemovedCounts) -> int:
        """Remove in batches until nothing is left; returns the number of calls. After each batch a thread writes the
        write-ahead log back (checkpoint), because otherwise the writer would write thousands of pages at once while
        others wait."""
        total, batch_size = 0, FIRST_BATCH
        while True:
            batch = partial(_timed, drop, batch_size)
            count, took_s = await self._database.write(batch, lock=organization_id, deferrable=True)
            total, removed.longest_s = total + count, max(removed.longest_s, took_s)
            if count < batch_size:
                return total
            batch_size = next_batch_size(batch_size, took_s)
            await self._database.checkpoint()

    async def _truncate_wal(self) -> bool:
        """Truncate the write-ahead log, which contains the removed data until then. Returns False if a reader prevents
        it."""
        for _ in range(WAL_ATTEMPTS):
            if await self._database.truncate_log():
                return True
            await asyncio.sleep(WAL_RETRY_S)
        log.info("retention.log_not_emptied", remedy="it is tried again in a minute")
        return False


def next_batch_size(batch_size: int, took_s: float) -> int:
    """Returns the size of the batch after one of this size and duration: by `TARGET_TRANSACTION_S`, at most doubled."""
    target = round(batch_size * TARGET_TRANSACTION_S / max(took_s, 1e-6))
    return max(1, min(target, 2 * batch_size, MAX_BATCH))


def _timed(drop: Drop, batch_size: int, conn: sa.Connection) -> tuple[int, float]:
    """Returns the result of `drop`, and its duration in s."""
    began = time.perf_counter()
    count = drop(conn, limit=batch_size)
    return count, time.perf_counter() - began
