"""RecordingUploader: moves the recordings of ended calls to the store, in the background.

Nothing of its work is stored: what is to be moved follows from the local disk and the calls in the database, so that a
process that is killed at any point leaves the rest to the next one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import structlog
from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from calls.periodic_worker import PeriodicWorker
from storage.calls.calls import Call
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.recording_store.object_store import ObjectRefused, StoreUnavailable
from storage.recording_store.recording_files import CallKey, RecordingFiles
from storage.recording_store.upload_candidates import (
    IDS_PER_QUERY,
    ended_and_recorded,
    mark_recorded_before_restart,
)

SCAN_EVERY_S: Final = 600.0
"""Interval of searches for recordings on the local disk that were left out."""
RETRY_AFTER_S: Final = 30.0
"""Wait after a failure of the database."""
FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 60.0
UPLOADS_AT_ONCE: Final = 2
PROBE_KEY: Final = "recordings/probe"
"""A key without an object: asking for it tells whether the store answers."""

Outcome = Literal["stored", "failed", "refused"]
log = structlog.get_logger()


def backoff_s(failures: int) -> float:
    """Returns the wait after so many failures in a row: twice as long each time, at most `MAX_BACKOFF_S`, with jitter,
    because all nodes wait for the same store."""
    longest = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 16))
    return longest * random.uniform(0.5, 1.0)


class RecordingUploader(Collector):
    """`run` moves recordings until it is cancelled. `add` is called with each call that was closed."""

    def __init__(self, database: Database, files: RecordingFiles) -> None:
        self._database = database
        self._files = files
        self._waiting: dict[str, CallKey] = {}
        """Recordings to be moved, by call, in their order."""
        self._failures = 0
        """Failures of the store since its last success."""
        self._attempts: dict[Outcome, int] = {"stored": 0, "failed": 0, "refused": 0}
        self._worker = PeriodicWorker("recordings.not_looked_at", SCAN_EVERY_S, RETRY_AFTER_S)

    def register(self) -> None:
        """Add the metrics to the registry."""
        REGISTRY.register(self)

    def unregister(self) -> None:
        """Remove the metrics from the registry."""
        REGISTRY.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """Yields nothing: the registry takes the names from each scrape."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yields the number of recordings that wait, and of attempts by outcome."""
        yield GaugeMetricFamily(
            "trunkline_recordings_waiting", "Recordings that wait to be moved to the store", value=len(self._waiting)
        )
        uploads = CounterMetricFamily(
            "trunkline_recording_uploads", "Attempts to move a recording to the store", labels=["outcome"]
        )
        for outcome, count in self._attempts.items():
            uploads.add_metric([outcome], count)
        yield uploads

    def add(self, call: Call) -> None:
        """Move the recording of a call that has ended, if it has one."""
        if call.recorded and call.ended_at is not None:
            self._waiting.setdefault(call.id, CallKey(call.id, call.created_at))
            self._worker.wake()

    async def wait_idle(self) -> None:
        """Wait until nothing waits to be moved."""
        await self._worker.wait_idle()

    async def run(self) -> None:
        """Move what is on the local disk, then each recording as soon as its call is closed."""
        if self._files.store is not None:
            with suppress(StoreUnavailable):  # logged once, also if nothing is to be moved yet
                await self._files.store.size(PROBE_KEY)
        await self._worker.run(self._work)

    async def _work(self) -> bool:
        if self._worker.is_due:
            await self._scan()
        while self._waiting:
            some = list(self._waiting.values())[: 1 if self._failures else UPLOADS_AT_ONCE]
            outcomes = await asyncio.gather(*(self._move(each) for each in some), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            if "failed" not in outcomes:
                self._failures = 0
                continue
            self._failures += 1
            await asyncio.sleep(backoff_s(self._failures))
        return True

    async def _scan(self) -> None:
        """Find the recordings on the local disk whose calls have ended. Files that no call refers to stay."""
        found = await asyncio.to_thread(self._files.local_calls)
        for at in range(0, len(found), IDS_PER_QUERY):
            some = found[at : at + IDS_PER_QUERY]
            with suppress(StorageUnavailable):  # of a full disk, on which a move makes space; the next scan marks them
                await self._database.write(partial(mark_recorded_before_restart, call_ids=some), deferrable=True)
            read = partial(ended_and_recorded, call_ids=some)
            self._waiting.update({each.id: each for each in await self._database.read(read)})

    async def _move(self, call: CallKey) -> Outcome:
        """Move one recording. One that fails goes to the end of the queue; one that the store or the disk refuses is
        left to the next scan."""
        outcome: Outcome = "stored"
        try:
            size = await self._files.move_to_store(call, partial(self._is_recorded, call.id))
            log.info("recording.stored", call_id=call.id, bytes=size)
        except (ObjectRefused, OSError) as error:
            outcome = "refused"
            cause = error.cause if isinstance(error, StoreUnavailable) else error.strerror or str(error)
            log.warning("recording.not_stored", call_id=call.id, cause=cause, again_in_s=SCAN_EVERY_S)
        except StoreUnavailable:
            outcome = "failed"
        self._attempts[outcome] += 1
        del self._waiting[call.id]
        if outcome == "failed":
            self._waiting[call.id] = call
        return outcome

    async def _is_recorded(self, call_id: str) -> bool:
        return bool(await self._database.read(partial(ended_and_recorded, call_ids=[call_id])))
