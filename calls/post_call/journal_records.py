"""The records of the call journal: JSON of a call's row, of its start and of its end, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final, cast

import sqlalchemy as sa

from calls.call_record.metering import CallUsage
from calls.call_record.outcome import CallOutcome
from calls.post_call.redaction import redactor
from calls.webhooks import call_events
from config.clock import iso
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import calls, transfers
from storage.calls.calls import Call
from storage.calls.transfers import TransferChanges

VERSION: Final = 1
_TIMES: Final = frozenset(each.name for each in fields(Call) if "datetime" in str(each.type))
_NO_JSON: Final = frozenset(("ended_at", "answered_at", "usage", "transfer_ends"))


@dataclass(frozen=True)
class CallStart:
    """The start of a call that is not stored. `agent` None: it was deleted."""

    call: Call
    agent: Agent | None
    at: datetime

    def store(self, conn: sa.Connection) -> bool:
        """Store the event of the start; of an outbound call also the Call-ID of its INVITE and the agent's version.
        Returns True if there is an event."""
        call = self.call
        if call.direction == "outbound":
            version = call.agent_version or 1 if self.agent is None else self.agent.version
            call = replace(call, agent_version=version)
            if not calls.mark_dialling(conn, call.id, str(call.call_sid), version):
                return False
        return call_events.add_started(conn, call, self.agent, self.at)


@dataclass(frozen=True)
class CallRecord:
    """What the journal has of a call. `row`: the call's row is not stored; `start_at`: its start at this time is not;
    `call` is there for both. `end`: the call has ended."""

    call: Call | None
    row: bool
    start_at: datetime | None
    end: CallOutcome | None

    def to_json(self) -> dict[str, Any]:
        """Returns the record as JSON."""
        return {
            "version": VERSION,
            "call": None if self.call is None else _call_to_json(self.call),
            "row": self.row,
            "start": _to_json(self.start_at),
            "end": None if self.end is None else _outcome_to_json(self.end),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> CallRecord:
        """Returns the record of a `to_json`. Raises `ValueError` for another version."""
        if record.get("version") != VERSION:
            raise ValueError(f"a record of version {record.get('version')}")
        call, end = record["call"], record["end"]
        return cls(
            None if call is None else _call(call),
            record["row"],
            _time(record["start"]),
            None if end is None else _outcome(end),
        )


@dataclass(frozen=True)
class JournaledTransferEnd:
    """The end of a transfer, read from the journal."""

    transfer_id: str
    changes: TransferChanges

    def write(self, conn: sa.Connection) -> bool:
        """Write the changes in a transaction, with their event. Does nothing if the transfer has ended."""
        before = transfers.get(conn, self.transfer_id)
        if before is None:
            return False
        changes = self.changes.copy()
        if changes.get("decline_reason"):
            rules = redactor.redaction_rules_of_organization(conn, before.organization_id)
            changes["decline_reason"] = redactor.redact_json(changes["decline_reason"], rules)
        stored = transfers.update(conn, self.transfer_id, **changes)
        call = calls.get_by_id(conn, before.parent_call_id)
        if call is None or stored is None:
            return False
        if any(each["status"] in ("connected", "completed") for each in stored.states):
            agent = None if call.agent_id is None else agents.get(conn, call.organization_id, call.agent_id)
            call_events.add_transferred(conn, call, agent, stored)
        return True

    def to_json(self) -> dict[str, Any]:
        """Returns the transfer's id and its changes as JSON."""
        return transfer_end_to_json(self.transfer_id, self.changes)


def transfer_end_to_json(transfer_id: str, changes: TransferChanges) -> dict[str, Any]:
    """Returns the JSON of a `JournaledTransferEnd`."""
    return {"id": transfer_id, "changes": {name: _to_json(value) for name, value in changes.items()}}


def _call_to_json(call: Call) -> dict[str, Any]:
    return {each.name: _to_json(getattr(call, each.name)) for each in fields(Call)}


def _call(stored: Mapping[str, Any]) -> Call:
    names = {each.name for each in fields(Call)}
    values: dict[str, Any] = {
        name: _time(value) if name in _TIMES else value for name, value in stored.items() if name in names
    }
    return Call(**values)


def _outcome_to_json(outcome: CallOutcome) -> dict[str, Any]:
    plain = {each.name: getattr(outcome, each.name) for each in fields(CallOutcome) if each.name not in _NO_JSON}
    return {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()},
        "ended_at": iso(outcome.ended_at),
        "answered_at": _to_json(outcome.answered_at),
        "usage": outcome.usage.to_json(),
        "transfer_ends": [each.to_json() for each in outcome.transfer_ends],
    }


def _outcome(stored: Mapping[str, Any]) -> CallOutcome:
    names = {each.name for each in fields(CallOutcome)}
    plain = {name: value for name, value in stored.items() if name in names and name not in _NO_JSON}
    return CallOutcome(
        **plain,
        ended_at=datetime.fromisoformat(stored["ended_at"]),
        answered_at=_time(stored["answered_at"]),
        usage=CallUsage.from_json(stored["usage"]),
        transfer_ends=[_transfer_end(each) for each in stored["transfer_ends"]],
    )


def _transfer_end(stored: Mapping[str, Any]) -> JournaledTransferEnd:
    changes = {name: _time(value) if name.endswith("_at") else value for name, value in stored["changes"].items()}
    return JournaledTransferEnd(stored["id"], cast(TransferChanges, changes))


def _to_json(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value


def _time(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)
