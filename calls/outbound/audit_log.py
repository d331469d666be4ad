"""Keeps the audit log from growing without end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from config.clock import utc_now
from storage.accounts import audit_log, organizations
from storage.calls import outbound_audit
from storage.database.database import Database, StorageTrouble

KEPT: Final = timedelta(days=400)
"""How long an attempt stays in the audit log."""
FORGET_EVERY_S: Final = 3600.0
PIECE: Final = 500
"""Rows that are removed in one transaction: others that write wait for milliseconds."""

log = structlog.get_logger()


async def forget_old(database: Database) -> int:
    """Remove what is older than `KEPT`, in small pieces; returns how many rows. Raises `StorageTrouble`."""
    before = utc_now() - KEPT
    gone = await database.write(partial(audit_log.forget, before=before))
    for organization in await database.read(organizations.all_of):
        forget = partial(outbound_audit.forget, organization_id=organization.id, before=before, limit=PIECE)
        while removed := await database.write(forget):
            gone += removed
    return gone


async def forget_regularly(database: Database) -> None:
    """The same now and every hour, until cancelled."""
    while True:
        try:
            if gone := await forget_old(database):
                log.info("audit.forgotten", attempts=gone)
        except StorageTrouble as trouble:
            log.warning("audit.not_forgotten", cause=trouble.cause)
        await asyncio.sleep(FORGET_EVERY_S)
