"""Ended calls with everything that is stored of a call."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from calls.call_record.timeline import CitedPassage, TimelineTurn
from config.clock import utc_now
from storage import tables
from storage.accounts import organizations
from storage.accounts.organizations import Organization
from storage.calls import calls, recordings, sip_traces, transfers
from storage.calls.calls import Call
from storage.calls.sip_traces import SipTrace
from storage.webhooks import deliveries
from tests.storage.calls.transfer_makers import transfer_of

SAID = "Zebra crossing at nine"
LASTED = timedelta(minutes=3)
SOUND = b"RIFF" + bytes(200)


def organization_with_retention(conn: sa.Connection, **days: Any) -> Organization:
    """Create an organization with these retention periods."""
    return organizations.change(conn, organizations.create(conn, f"of {len(organizations.all_of(conn))}"), days)


def past_call(
    conn: sa.Connection,
    owner: str,
    ended_at: datetime,
    *,
    delivered: bool = True,
    ended: bool = True,
    parent: str | None = None,
) -> Call:
    """Store a call that ended at a time, with transcript, SIP messages and webhook; `delivered`: its webhook was
    delivered."""
    call = calls.create_inbound(
        conn,
        organization_id=owner,
        agent_id="",
        phone_number_id="",
        provider="sip",
        call_sid="x",
        customer_number="+4940654321",
        context_variables={"name": SAID},
        metadata={"ticket": 17, "sip.from_name": SAID},
    )
    began = {"created_at": ended_at - LASTED, "parent_call_id": parent}
    conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call.id).values(**began))
    sip_traces.store(conn, {call.id: SipTrace([])})
    said = {"reason": SAID, "summary": SAID, "decline_reason": SAID}
    transfers.insert(conn, transfer_of(call, status="declined", ended_at=ended_at, **said))
    if not ended:
        return _stored(conn, call.id)
    turn = TimelineTurn(1)
    turn.sources.append(CitedPassage(str(uuid4()), SAID, 1, 0.5))
    calls.finish(
        conn,
        call.id,
        status="completed",
        ended_reason="customer_ended",
        ended_at=ended_at,
        answered_at=ended_at - LASTED,
        transcript=[{"role": "user", "content": SAID}],
        timeline=[turn.to_json(0.0)],
        analysis={"summary": SAID, "extractions": {"said": SAID}},
        recording=True,
        turn_count=1,
    )
    body = f'{{"summary": "{SAID}"}}'.encode()
    event = deliveries.add(
        conn, organization_id=owner, call_id=call.id, url="https://receiver.test/", body=body, secret_encrypted=None
    )
    if delivered:
        deliver(conn, event.id)
    return _stored(conn, call.id)


def deliver(conn: sa.Connection, delivery_id: str) -> None:
    """The event's only attempt was answered with 200."""
    (due,) = [each for each in deliveries.due_attempts(conn, utc_now()) if each.delivery.id == delivery_id]
    deliveries.record_attempt(
        conn,
        due.attempt,
        succeeded=True,
        response_status=200,
        response_body=SAID,
        error=None,
        duration_ms=1,
        started_at=utc_now(),
    )


def _stored(conn: sa.Connection, call_id: str) -> Call:
    stored = calls.get_by_id(conn, call_id)
    assert stored is not None
    return stored


def write_recording(data_dir: Path, call: Call) -> Path:
    """Write the file of the call's recording; returns its path."""
    path = recordings.path_of(data_dir, call.id, call.created_at)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SOUND)
    return path


def tables_with_data(conn: sa.Connection, call_id: str) -> set[str]:
    """Returns the tables that still have data of the call."""
    found = {
        "calls": sa.select(tables.calls.c.id).where(tables.calls.c.id == call_id),
        "transfers": sa.select(tables.transfers.c.id).where(tables.transfers.c.parent_call_id == call_id),
        "call_sip": sa.select(tables.call_sip.c.call_id).where(tables.call_sip.c.call_id == call_id),
        "webhook_deliveries": sa.select(tables.webhook_deliveries.c.id).where(
            tables.webhook_deliveries.c.call_id == call_id
        ),
        "recording_removals": sa.select(tables.recording_removals.c.call_id).where(
            tables.recording_removals.c.call_id == call_id
        ),
    }
    return {name for name, query in found.items() if conn.execute(query).first() is not None}
