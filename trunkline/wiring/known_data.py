"""What a node of several knows without the database, for the setting `[database] grace_s`."""

from __future__ import annotations

from contextlib import AsyncExitStack

from calls.admission.known_data import KnownData
from config.settings import Settings
from storage.database.database import Database
from storage.phone_numbers.admission_replica import AdmissionReplica


def open_known_data(
    settings: Settings, database: Database, stack: AsyncExitStack
) -> tuple[KnownData, AdmissionReplica | None]:
    """Returns what admission reads, and the replica that is to be run; None without a grace period, and with SQLite,
    whose file does not go away."""
    if database.is_sqlite:
        return KnownData(database), None
    grace_s = settings.database.grace_s
    if not grace_s:
        return KnownData(database, grace_s=0), None
    replica = AdmissionReplica(database)
    stack.push_async_callback(replica.close)
    return KnownData(database, replica, grace_s), replica
