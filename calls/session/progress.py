"""Stores the progress of a call that goes on. Its end stores all of it again, so a failure here is only logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa
from structlog.typing import FilteringBoundLogger

from storage.database.database import Database, StorageUnavailable

T = TypeVar("T")


async def store_progress(
    database: Database, write: Callable[[sa.Connection], T], log: FilteringBoundLogger, *, deferrable: bool = False
) -> T | None:
    """Returns what `write` returns; None when it could not be stored. `deferrable`: see `Database.write`."""
    try:
        return await database.write(write, deferrable=deferrable)
    except StorageUnavailable as trouble:
        warn = log.debug if trouble.disk_full else log.warning  # a full disk is logged once, by its watch
        warn("call.progress_not_stored", cause=trouble.cause)
        return None
