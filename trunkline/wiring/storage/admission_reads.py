"""What a node of several knows without the database, for the setting `[database] grace_s`."""

from __future__ import annotations

from contextlib import AsyncExitStack

from calls.admission.admission_reads import AdmissionReads
from config.settings import Settings
from storage.database.database import Database
from storage.phone_numbers.admission_replica import AdmissionReplica


def open_admission_reads(
    settings: Settings, database: Database, stack: AsyncExitStack
) -> tuple[AdmissionReads, AdmissionReplica | None]:
    """Returns what admission reads, and the replica that is to be run; None without a grace period, and with SQLite,
    whose file does not go away."""
    if database.is_sqlite:
        return AdmissionReads(database), None
    grace_s = settings.database.grace_s
    if not grace_s:
        return AdmissionReads(database, grace_s=0), None
    replica = AdmissionReplica(database)
    stack.push_async_callback(replica.close)
    return AdmissionReads(database, replica, grace_s), replica
