"""RecordingRemover: removes the files of recordings whose calls, or whose recordings, were deleted. Each node removes
what is on its own disk, also when it was down at the deletion."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import structlog

from calls.periodic_worker import PeriodicWorker
from storage.calls import deletion
from storage.database.database import Database
from storage.nodes import recording_removals
from storage.recording_store import upload_candidates
from storage.recording_store.recording_files import RecordingFiles

FILES_PER_TRANSACTION: Final = 100
CHECK_EVERY_S: Final = 60.0

log = structlog.get_logger()


class RecordingRemover:
    """`run` is for one of several nodes; the only server of a database removes files together with retention."""

    def __init__(self, database: Database, recordings: RecordingFiles) -> None:
        self._database = database
        self._recordings = recordings
        self._lock = asyncio.Lock()
        self._worker = PeriodicWorker("retention.storage_trouble", CHECK_EVERY_S, CHECK_EVERY_S, "warning")
        self._is_adopted = False
        """True once the recordings on the disk are known as this node's."""
        self._removed_from_store: set[str] = set()
        """Calls of nodes that are down, whose recordings were removed from the store."""
        self.is_complete = True
        """False if recordings are left that should have been removed from a store."""

    def wake(self) -> None:
        """Remove files now, because calls were removed."""
        self._worker.wake()

    async def run(self) -> None:
        """Remove this node's files until cancelled."""
        await self._worker.run(self._work)

    async def _work(self) -> bool:
        if not self._is_adopted:
            await self._adopt()
            self._is_adopted = True
        files = await self.remove_files()
        if files:
            log.info("recordings.removed", files=files)
        return self.is_complete

    async def _adopt(self) -> None:
        """Store that the recordings on the disk are this node's, and that those exist which it had when it died."""
        found = await asyncio.to_thread(self._recordings.local_ids)
        for at in range(0, len(found), upload_candidates.IDS_PER_QUERY):
            some = found[at : at + upload_candidates.IDS_PER_QUERY]
            await self._database.write(partial(upload_candidates.adopt, call_ids=some), deferrable=True)

    async def remove_files(self) -> int:
        """Remove the files of this node's recordings without a row; returns their number. The next run tries a file
        that cannot be removed again. Raises `StorageUnavailable`."""
        async with self._lock:
            total, last, self.is_complete = 0, "", True
            while without_row := await self._database.read(
                partial(deletion.pending_file_removals, limit=FILES_PER_TRANSACTION, after=last)
            ):
                ids = await self._recordings.remove(without_row)
                if ids:
                    await self._database.write(
                        partial(deletion.finish_file_removals, call_ids=ids), lock="recording removals", deferrable=True
                    )
                total += len(ids)
                last = without_row[-1][0]
                if self._recordings.store is not None and len(ids) < len(without_row):
                    self.is_complete = False
                    break  # an attempt with each of the others could take seconds
            return total

    async def remove_from_store(self) -> None:
        """Remove the recordings of nodes that are down from the store; they remove their own files when they start.
        For the node that does the retention of all. Raises `StorageUnavailable`."""
        if self._recordings.store is None or self._recordings.read_only:
            return
        waiting = await self._database.read(recording_removals.of_down_nodes)
        self._removed_from_store &= {call_id for call_id, _ in waiting}
        left = [each for each in waiting if each[0] not in self._removed_from_store]
        removed = await self._recordings.remove_from_store(left)
        self._removed_from_store.update(removed)
        self.is_complete = self.is_complete and len(removed) == len(left)
