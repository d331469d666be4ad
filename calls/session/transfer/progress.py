"""Stores the progress of a transfer."""

from __future__ import annotations

from typing import Unpack

import sqlalchemy as sa

from calls.post_call.redaction import redactor
from calls.session.best_effort_write import best_effort_write
from calls.session.dependencies import CallDependencies
from storage.calls import transfers
from storage.calls.transfers import Transfer, TransferChanges


async def store_transfer(deps: CallDependencies, transfer: Transfer, **changes: Unpack[TransferChanges]) -> None:
    """Store changes of an open transfer. A failure is only logged: the transfer goes on, and its end is stored by the
    next start at the latest."""

    def update(conn: sa.Connection) -> Transfer | None:
        if changes.get("decline_reason"):
            rules = redactor.redaction_rules_of_organization(conn, transfer.organization_id)
            changes["decline_reason"] = redactor.redact_json(changes["decline_reason"], rules)
        return transfers.update(conn, transfer.id, **changes)

    await best_effort_write(deps.database, transfer.parent_call_id, update)
