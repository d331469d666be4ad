"""Quota accounting: how much of each quota organizations use, as metrics. Stores the sizes of new recordings, and
removes the files of failed documents, both of which count."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import REGISTRY, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from calls.periodic_worker import PeriodicWorker
from config.clock import utc_now
from storage.accounts import quotas
from storage.accounts.quotas import QuotaUsage
from storage.database.database import Database
from storage.knowledge import documents, files
from storage.recording_store.recording_files import RecordingFiles

CHECK_EVERY_S: Final = 30.0
"""Also the greatest age of the figures."""
RETRY_AFTER_S: Final = 30.0
FILES_PER_TRANSACTION: Final = 200
"""Files in one transaction."""
FAILED_FILE_MAX_AGE: Final = timedelta(days=1)
"""Age at which the file of a failed document is removed: until then the operator can look into the cause."""

log = structlog.get_logger()


class QuotaAccounting(Collector):
    """`run` updates figures and sizes until it is cancelled. `defaults` are the quotas of organizations without their
    own."""

    def __init__(
        self,
        database: Database,
        data_dir: Path,
        defaults: Mapping[str, int],
        recordings: RecordingFiles | None = None,
    ) -> None:
        """Without `recordings` all are in `data_dir`."""
        self._database = database
        self._recordings = recordings or RecordingFiles(data_dir)
        self._data_dir = data_dir
        self._defaults = defaults
        self._usage: Mapping[str, Mapping[str, QuotaUsage]] = {}
        self._over_quota: frozenset[str] = frozenset()
        self._worker = PeriodicWorker("quotas.not_looked_at", CHECK_EVERY_S, RETRY_AFTER_S)

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
        """Yields the figures of the last check. Does not read the database."""
        labels = ["organization", "quota"]
        used = GaugeMetricFamily("trunkline_quota_used", "Use of a quota, in items or bytes", labels=labels)
        limit = GaugeMetricFamily("trunkline_quota_limit", "Limit of a quota, in items or bytes", labels=labels)
        for organization_id, usage in self._usage.items():
            for each in usage.values():
                used.add_metric([organization_id, each.quota], each.used)
                limit.add_metric([organization_id, each.quota], each.allowed)
        yield used
        yield limit

    async def run(self) -> None:
        """Check at once and every `CHECK_EVERY_S`."""
        await self._worker.run(self._check)

    async def _check(self) -> bool:
        await self.measure_recordings()
        await self.remove_failed_files()
        self._usage = await self._database.read(partial(quotas.usage_of_all, defaults=self._defaults))
        self._warn_about_recordings()
        return True

    async def measure_recordings(self) -> None:
        """Store the sizes of new recordings; a missing file has size 0. Sizes that a store does not tell now are asked
        for at the next check."""
        on_this_node = self._recordings.store is None
        read = partial(quotas.recordings_without_size, limit=FILES_PER_TRANSACTION, on_this_node=on_this_node)
        while batch := await self._database.read(read):
            sizes = await self._recordings.sizes(batch)
            if sizes:
                await self._database.write(
                    partial(quotas.set_recording_sizes, sizes=sizes), lock="recording sizes", deferrable=True
                )
            if len(sizes) < len(batch):
                return

    async def remove_failed_files(self) -> None:
        """Remove the files of documents that failed a day ago. A file that cannot be removed is tried again."""
        read = partial(documents.failed_files, before=utc_now() - FAILED_FILE_MAX_AGE, limit=FILES_PER_TRANSACTION)
        while batch := await self._database.read(read):
            removed = await asyncio.to_thread(self._remove_files, batch)
            if not removed:
                return
            await self._database.write(
                partial(documents.mark_failed_files_removed, content_ids=removed),
                lock="failed documents",
                deferrable=True,
            )
            log.info("knowledge.failed_files_removed", files=len(removed))

    def _remove_files(self, content_ids: Sequence[str]) -> list[str]:
        """Returns the contents whose files were removed."""
        return [each for each in content_ids if files.remove(self._data_dir, each)]

    def _warn_about_recordings(self) -> None:
        """Log one warning when an organization exceeds its quota. Its recordings are not cut."""
        recordings_usage = {
            owner: each for owner, usage in self._usage.items() if (each := usage.get(quotas.RECORDINGS)) is not None
        }
        over_quota = frozenset(owner for owner, each in recordings_usage.items() if each.used > each.allowed)
        for owner in over_quota - self._over_quota:
            each, remedy = recordings_usage[owner], "keep them for less long, or raise the quota: `trunkline org set`"
            used = {"used": each.used, "allowed": each.allowed}
            log.warning("quota.recordings_over", organization_id=owner, **used, remedy=remedy)
        self._over_quota = over_quota
