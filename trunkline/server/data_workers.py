"""What looks after the stored data while the server runs."""

from __future__ import annotations

from dataclasses import dataclass

from calls.knowledge.ingestion import DocumentIngester
from calls.live.document_feed import DocumentFeed
from calls.post_call.retention_worker import RetentionWorker
from calls.quota_accounting import QuotaAccounting
from config.settings import Settings
from storage.database.disk_space import DiskSpace
from trunkline.wiring.server_components import ServerComponents


@dataclass(frozen=True)
class DataWorkers:
    """The space of the disk, the deletion of old data, the documents that are read, and the use of quotas."""

    disk: DiskSpace
    retention: RetentionWorker
    ingester: DocumentIngester
    quota_accounting: QuotaAccounting


def data_workers(settings: Settings, components: ServerComponents) -> DataWorkers:
    """Returns them; they run as background tasks."""
    storage, calls = components.storage, components.calls
    database, data_dir, files = storage.database, settings.data_dir, storage.recording_files
    retention = RetentionWorker(database, data_dir, files)
    documents = DocumentFeed(calls.live_calls.events)
    return DataWorkers(
        DiskSpace(database, data_dir, settings.limits.disk_reserve_mb, calls.service.on_outage_over),
        retention,
        DocumentIngester(
            database, data_dir, calls.indexer.wake, retention.request_wal_truncation, documents.on_changed
        ),
        QuotaAccounting(database, data_dir, settings.quotas.model_dump(), files),
    )
