"""Stores the progress of a call that goes on. Its end stores all of it again, so a failure here is only logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa
import structlog

from storage.database.database import Database, StorageUnavailable

T = TypeVar("T")

log = structlog.get_logger()


async def write_progress(
    database: Database, call_id: str, write: Callable[[sa.Connection], T], *, deferrable: bool = False
) -> T | None:
    """Returns what `write` returns; None when it could not be stored. `deferrable`: see `Database.write`."""
    try:
        return await database.write(write, deferrable=deferrable)
    except StorageUnavailable as trouble:
        tell = log.debug if trouble.disk_full else log.warning  # a full disk has a warning of its own
        tell("call.progress_not_stored", call_id=call_id, cause=trouble.cause)
        return None
