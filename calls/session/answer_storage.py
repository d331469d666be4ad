"""Stores the answer of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from calls.post_call.redaction import redactor
from calls.post_call.redaction.redactor import RedactionRules
from calls.session.best_effort_write import best_effort_write_after_start
from calls.session.dependencies import CallDependencies
from calls.webhooks import call_events
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call
from storage.database.errors import StorageUnavailable
from storage.webhooks.deliveries import EventReceiver


@dataclass(frozen=True)
class StoredAnswer:
    """What is known of the organization when the answer of a call is stored: its redaction rules, and who gets the
    call's turns."""

    rules: RedactionRules
    turn_receivers: Sequence[EventReceiver]
    has_event: bool = False


async def store_answer(
    deps: CallDependencies, call: Call, agent: Agent, at: datetime | None, *, deferrable: bool = False
) -> StoredAnswer:
    """Store the answer `at` this time, with its event; None: none, for a call that was not established. A failure is
    logged. If nothing can be read either, the strictest redaction
    rules count, and the agent's URL alone. `deferrable`: see `Database.write`."""

    def read(conn: sa.Connection) -> StoredAnswer:
        # Not the rules of the call: its row may wait for space on a full disk.
        rules = redactor.redaction_rules_of_organization(conn, call.organization_id)
        return StoredAnswer(rules, call_events.event_receivers(conn, call, agent, "call.turn"))

    def store(conn: sa.Connection) -> StoredAnswer:
        if at is None or not calls.mark_answered(conn, call.id, at):
            return read(conn)
        return replace(read(conn), has_event=call_events.add_answered(conn, call, agent, at))

    stored = await best_effort_write_after_start(deps, call.id, store, deferrable=deferrable)
    if stored is None:
        try:
            return await deps.reads.read(read)
        except StorageUnavailable:
            return StoredAnswer(redactor.REDACT_EVERYTHING, call_events.receivers_of_agent(call, agent, "call.turn"))
    if stored.has_event:
        deps.webhook_queued()
    return stored
