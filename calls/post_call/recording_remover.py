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
LOCK: Final = "recording removals"

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
            unknown = await self._database.read(partial(upload_candidates.to_adopt, call_ids=some))
            for organization_id, call_ids in unknown.items():
                adopt = partial(upload_candidates.adopt, call_ids=call_ids)
                await self._database.write(adopt, owner=organization_id, deferrable=True)

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
                        partial(deletion.finish_file_removals, call_ids=ids), lock=LOCK, deferrable=True
                    )
                total += len(ids)
                last = without_row[-1][0]
                if self._recordings.store is not None and len(ids) < len(without_row):
                    self.is_complete = False
                    break  # an attempt with each of the others could take seconds
            return total

    async def remove_for_other_nodes(self) -> None:
        """Remove the recordings of nodes that are down from the store; they remove their own files when they start.
        What only a node could remove that is not known any more is dropped. For the node that does the retention of
        all. Raises `StorageUnavailable`."""
        if self._recordings.read_only:
            return
        last, seen = "", set[str]()
        while waiting := await self._database.read(
            partial(recording_removals.of_down_nodes, limit=FILES_PER_TRANSACTION, after=last)
        ):
            last = waiting[-1].call_id
            seen.update(each.call_id for each in waiting)
            left = [(each.call_id, each.created_at) for each in waiting if each.call_id not in self._removed_from_store]
            removed = await self._recordings.remove_from_store(left)
            self._removed_from_store.update(removed)
            done = [each.call_id for each in waiting if each.is_abandoned and self._is_in_no_store(each.call_id)]
            if done:
                finish = partial(deletion.finish_file_removals, call_ids=done)
                await self._database.write(finish, lock=LOCK, deferrable=True)
            if self._recordings.store is not None and len(removed) < len(left):
                self.is_complete = False
                return
        self._removed_from_store &= seen

    def _is_in_no_store(self, call_id: str) -> bool:
        return self._recordings.store is None or call_id in self._removed_from_store
