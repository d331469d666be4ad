"""Stores the answer of a call."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from calls.post_call.redaction import redactor
from calls.post_call.redaction.redactor import RedactionRules
from calls.session.best_effort_write import best_effort_write
from calls.session.dependencies import CallDependencies
from calls.webhooks import call_events
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call


async def store_answer(
    deps: CallDependencies, call: Call, agent: Agent, at: datetime, *, deferrable: bool = False
) -> RedactionRules:
    """Store the answer, with its event; a failure is logged. Returns the organization's redaction rules, the strictest
    ones after a failure. `deferrable`: see `Database.write`."""

    def store(conn: sa.Connection) -> tuple[RedactionRules, bool]:
        # Not the rules of the call: its row may wait for space on a full disk.
        rules = redactor.redaction_rules_of_organization(conn, call.organization_id)
        is_new = calls.mark_answered(conn, call.id, at)
        return rules, is_new and call_events.add_answered(conn, call, agent, at)

    stored = await best_effort_write(deps.database, call.id, store, deferrable=deferrable)
    if stored is None:
        return redactor.REDACT_EVERYTHING
    if stored[1]:
        deps.webhook_queued()
    return stored[0]
