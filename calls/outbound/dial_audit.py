"""Audit of outbound dial attempts: entries of queued calls that are not dialled, log lines, and pruning."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

import sqlalchemy as sa
import structlog

from calls.periodic_worker import PeriodicWorker
from config.clock import utc_now
from storage.accounts import audit_log, organizations
from storage.calls import outbound_audit
from storage.calls.calls import Call
from storage.calls.outbound_audit import DialAttempt, DialRequest
from storage.database.database import Database

PRUNE_EVERY_S: Final = 3600.0
ROWS_PER_TRANSACTION: Final = 500
"""Rows that one transaction removes: other writers wait for milliseconds."""

log = structlog.get_logger()


def record_not_dialled(conn: sa.Connection, call: Call, reason: str) -> DialAttempt:
    """Store an entry for a queued call that is not dialled, and return it."""
    queued = outbound_audit.attempt_of_call(conn, call.id)
    dial_request = DialRequest(
        organization_id=call.organization_id,
        phone_number_id=call.phone_number_id,
        destination=call.customer_number,
        client=None if queued is None else queued.client,
        number=None if queued is None else queued.number,
        api_key_id=None if queued is None else queued.api_key_id,
        api_key_prefix=None if queued is None else queued.api_key_prefix,
    )
    return outbound_audit.record(conn, dial_request, "not_dialled", call_id=call.id, detail=reason)


def log_attempt(attempt: DialAttempt) -> None:
    """Log an entry of the audit log."""
    log.info(
        "outbound.attempt",
        verdict=attempt.verdict,
        destination=attempt.destination,
        organization_id=attempt.organization_id,
        phone_number_id=attempt.phone_number_id,
        api_key_id=attempt.api_key_id,
        client=attempt.client,
        call_id=attempt.call_id,
        detail=attempt.detail,
    )


async def prune(database: Database, keep: timedelta) -> int:
    """Remove entries of this age, in small transactions; returns their number. Raises
    `StorageUnavailable`."""
    before = utc_now() - keep
    pruned = 0
    forget: Callable[[sa.Connection], int] = partial(audit_log.delete_before, before=before, limit=ROWS_PER_TRANSACTION)
    while removed := await database.write(forget, lock="audit"):
        pruned += removed
    for organization in await database.read(organizations.all_of):
        forget = partial(
            outbound_audit.delete_before, organization_id=organization.id, before=before, limit=ROWS_PER_TRANSACTION
        )
        while removed := await database.write(forget, lock=organization.id):
            pruned += removed
    return pruned


async def prune_periodically(database: Database, keep: timedelta) -> None:
    """`prune` at once and every hour, until cancelled."""

    async def work() -> bool:
        if pruned := await prune(database, keep):
            log.info("audit.forgotten", entries=pruned)
        return True

    await PeriodicWorker("audit.not_forgotten", PRUNE_EVERY_S, PRUNE_EVERY_S, "warning").run(work)
