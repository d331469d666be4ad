"""Best-effort writes of an active call: its end stores all of it again, so a failure is only logged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import sqlalchemy as sa
import structlog

from calls.session.dependencies import CallDependencies
from storage.database.database import Database
from storage.database.errors import StorageUnavailable

T = TypeVar("T")

log = structlog.get_logger()


async def best_effort_write(
    database: Database, call_id: str, write: Callable[[sa.Connection], T], *, deferrable: bool = False
) -> T | None:
    """Returns the result of `write`; None if it could not be stored. `deferrable`: see `Database.write`."""
    was_away = database.away_since_s is not None
    try:
        return await database.write(write, deferrable=deferrable)
    except StorageUnavailable as error:
        # `DiskSpace` logs a full disk once, and an outage is not logged again for each call
        log_failure = log.debug if error.disk_full or (was_away and error.is_outage) else log.warning
        log_failure("call.progress_not_stored", call_id=call_id, cause=error.cause)
        return None


async def best_effort_write_after_start(
    deps: CallDependencies, call_id: str, write: Callable[[sa.Connection], T], *, deferrable: bool = False
) -> T | None:
    """As `best_effort_write`; first stores, in the same transaction, what could not be stored of the call's start."""
    buffer = deps.finalizer.outage_buffer
    work = partial(buffer.insert_row_and, call_id, write)
    result = await best_effort_write(deps.database, call_id, work, deferrable=deferrable)
    if result is not None and buffer.remove_row(call_id):
        deps.webhook_queued()
    return result
