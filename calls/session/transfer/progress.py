"""Stores the progress of a transfer."""

from __future__ import annotations

import asyncio
from typing import Any, Unpack

import sqlalchemy as sa

from calls.live.live_call import TransferNews
from calls.post_call.journal_records import transfer_end_to_json
from calls.post_call.redaction import redactor
from calls.session.best_effort_write import best_effort_write
from calls.session.dependencies import CallDependencies
from calls.webhooks import call_events
from config.clock import iso, utc_now
from storage.agents.agents import Agent
from storage.calls import calls, transfers
from storage.calls.calls import Call
from storage.calls.transfers import Transfer, TransferChanges, TransferState


class TransferProgress:
    """Stores the changes of one transfer in the background, in order, so that no leg waits for the database. What could
    not be stored is stored with the next changes, and with the end of a call by `write`."""

    def __init__(self, deps: CallDependencies, transfer: Transfer, call: Call, agent: Agent) -> None:
        """`call`: the caller's; `agent`: its agent."""
        self._database = deps.database
        self._webhook_queued = deps.webhook_queued
        self._call = call
        self._agent = agent
        self._transfer = transfer
        self._changes: TransferChanges = {}
        self._states = list(transfer.states)
        self._all_stored = True
        self._writing: asyncio.Task[None] | None = None
        self._live_calls = deps.live_calls
        self._news = TransferNews(transfer)
        self._live_calls.publish_transfer(self._news)

    @property
    def transfer_id(self) -> str:
        """The id of the transfer."""
        return self._transfer.id

    def store(self, **changes: Unpack[TransferChanges]) -> asyncio.Task[None]:
        """Store changes of an open transfer. Returns at once a task that is done when they are stored, or could not
        be."""
        if (status := changes.get("status")) is not None:
            at = changes.get("connected_at") or changes.get("ended_at") or utc_now()
            self._states.append(TransferState(status=status, at=iso(at)))
            changes["states"] = list(self._states)
        self._changes.update(changes)
        self._all_stored = False
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._store_all())
        return self._writing

    async def wait_stored(self) -> None:
        """Wait until all changes are stored, or could not be."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    def write(self, conn: sa.Connection) -> bool:
        """Write all changes so far in a transaction. Does nothing if the transfer has ended."""
        changes = self._changes.copy()
        if changes.get("decline_reason"):
            rules = redactor.redaction_rules_of_organization(conn, self._transfer.organization_id)
            changes["decline_reason"] = redactor.redact_json(changes["decline_reason"], rules)
        stored = transfers.update(conn, self._transfer.id, **changes)
        if stored is not None:
            self._news = TransferNews(stored, calls.get_by_id(conn, stored.id))
        if stored is not None and any(each["status"] in ("connected", "completed") for each in stored.states):
            call_events.add_transferred(conn, self._call, self._agent, stored)
        return True

    def to_json(self) -> dict[str, Any]:
        """Returns the changes so far as JSON, for the call journal."""
        return transfer_end_to_json(self._transfer.id, self._changes)

    async def _store_all(self) -> None:
        stored: bool | None = True
        while stored and not self._all_stored:
            self._all_stored = True
            stored = await best_effort_write(self._database, self._transfer.parent_call_id, self.write)
            if stored:
                self._live_calls.publish_transfer(self._news)
            if stored and any(each["status"] in ("connected", "completed") for each in self._states):
                self._webhook_queued()
        self._all_stored = bool(stored)
