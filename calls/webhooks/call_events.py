"""The events of calls: who gets them, their bytes, and the outbox of those that are stored. An event is stored in the
transaction that stores what has happened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from config.clock import iso
from storage.agents.agents import Agent
from storage.calls.calls import Call
from storage.calls.transfers import Transfer
from storage.tables.agent_fields import WebhookEvent
from storage.webhooks import deliveries, endpoints
from storage.webhooks.deliveries import EventReceiver


def event_receivers(conn: sa.Connection, call: Call, agent: Agent | None, event: WebhookEvent) -> list[EventReceiver]:
    """Returns who gets an event of a call: the agent's URL, and the organization's endpoints."""
    if not call.deliver_webhook:
        return []
    of_organization = endpoints.of_event(conn, call.organization_id, event)
    return [
        *receivers_of_agent(call, agent, event),
        *(EventReceiver(each.url, each.secret_encrypted, each.id) for each in of_organization),
    ]


def receivers_without_event(
    conn: sa.Connection, call: Call, agent: Agent | None, event: WebhookEvent, subject: str = ""
) -> list[EventReceiver]:
    """Returns who gets an event of a call and has it neither in the outbox nor received."""
    receivers = event_receivers(conn, call, agent, event)
    return deliveries.receivers_without(conn, call.id, event, subject, receivers) if receivers else []


def receivers_of_agent(call: Call, agent: Agent | None, event: WebhookEvent) -> list[EventReceiver]:
    """Returns the agent's URL if it gets this event of the call."""
    if not call.deliver_webhook or agent is None or not agent.post_call_webhook_url:
        return []
    if event not in agent.post_call_webhook_events:
        return []
    return [EventReceiver(agent.post_call_webhook_url, agent.post_call_webhook_secret_encrypted)]


def add_started(conn: sa.Connection, call: Call, agent: Agent | None, at: datetime) -> bool:
    """Store `call.started`, as `add_event`: the INVITE was accepted for processing, or is about to be sent."""
    return add_event(conn, call, agent, "call.started", at, {"status": "ringing"})


def add_answered(conn: sa.Connection, call: Call, agent: Agent | None, at: datetime) -> bool:
    """Store `call.answered`, as `add_event`."""
    return add_event(conn, call, agent, "call.answered", at, {"status": "in_progress", "startedAt": iso(at)})


def add_transferred(conn: sa.Connection, call: Call, agent: Agent | None, transfer: Transfer) -> bool:
    """Store `call.transferred` of the caller's call, as `add_event`: the transfer was connected, or the peer has taken
    the call by REFER."""
    at = transfer.connected_at or transfer.ended_at or transfer.created_at
    details = {
        "status": "in_progress",
        "transfer": {
            "id": transfer.id,
            "targetName": transfer.target_name,
            "customerNumber": transfer.number,
            "mode": transfer.mode,
            "status": "completed" if transfer.connected_at is None else "connected",
            "requestedBy": transfer.requested_by,
            "createdAt": iso(transfer.created_at),
            "connectedAt": iso(at),
        },
    }
    return add_event(conn, call, agent, "call.transferred", at, details, subject=transfer.id)


def add_failed(conn: sa.Connection, call: Call, agent: Agent | None) -> bool:
    """Store `call.failed` of a call that has ended, as `add_event`; not for one that was answered."""
    if call.status == "completed" or call.ended_at is None:
        return False
    details = {
        "status": call.status,
        "endedReason": call.ended_reason,
        "endedAt": iso(call.ended_at),
        "sipStatus": call.sip_end["statusCode"] if call.sip_end else None,
    }
    return add_event(conn, call, agent, "call.failed", call.ended_at, details)


def add_event(
    conn: sa.Connection,
    call: Call,
    agent: Agent | None,
    event: WebhookEvent,
    at: datetime,
    details: Mapping[str, Any],
    *,
    subject: str = "",
) -> bool:
    """Put an event into the outbox for each of its receivers, once. `subject`: what it is about besides the call.
    Returns True if there is something to send."""
    receivers = receivers_without_event(conn, call, agent, event, subject)
    if not receivers:
        return False
    body = event_body(call, event, at, {**details, **_given(call)})
    add_to_outbox(conn, call, event, receivers, body, subject=subject)
    return True


def add_to_outbox(
    conn: sa.Connection,
    call: Call,
    event: WebhookEvent,
    receivers: Sequence[EventReceiver],
    body: bytes,
    *,
    subject: str = "",
) -> None:
    """Store these bytes for each receiver."""
    deliveries.add_all(
        conn,
        receivers,
        organization_id=call.organization_id,
        call_id=call.id,
        body=body,
        event=event,
        subject=subject,
    )


def _given(call: Call) -> dict[str, Any]:
    return {"contextVariables": call.context_variables, "metadata": call.metadata}


def event_body(call: Call, event: WebhookEvent, at: datetime, details: Mapping[str, Any]) -> bytes:
    """Returns the body of an event other than `call.completed`, UTF-8 JSON, with `details` after what all of them
    have."""
    payload = {
        "event": event,
        "timestamp": iso(at),
        "callId": call.id,
        "organizationId": call.organization_id,
        "agentId": call.agent_id,
        "agentVersion": call.agent_version,
        "phoneNumberId": call.phone_number_id,
        "direction": call.direction,
        "customerNumber": call.customer_number,
        "calledNumber": call.called_number,
        "parentCallId": call.parent_call_id,
        **({"test": True} if call.test else {}),
        **details,
    }
    # A lone surrogate cannot be encoded, and must not keep a call from going on.
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
