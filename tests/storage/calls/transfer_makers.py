"""Stored calls in progress, and transfers of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from storage.calls import calls
from storage.calls.calls import Call
from storage.calls.transfers import Transfer

SECOND = timedelta(seconds=1)


def parent_call(conn: sa.Connection, organization_id: str) -> Call:
    """A call in progress."""
    call = calls.create_inbound(
        conn,
        organization_id=organization_id,
        agent_id=str(uuid4()),
        phone_number_id=str(uuid4()),
        provider="sip",
        call_sid="abc@pbx",
        customer_number="+41441234567",
        context_variables={"name": "Ada"},
        metadata={"order": 7},
    )
    calls.mark_answered(conn, call.id, call.created_at)
    return call


def transfer_of(call: Call, **changes: Any) -> Transfer:
    """A transfer of the call that has just been asked for."""
    fields: dict[str, Any] = {
        "id": str(uuid4()),
        "organization_id": call.organization_id,
        "parent_call_id": call.id,
        "mode": "warm_briefing",
        "status": "initiated",
        "target_name": "Sales",
        "number": "+4930123456",
        "reason": "wants to buy",
        "summary": "Asked for prices",
        "requested_by": "agent",
        "created_at": call.created_at + SECOND,
    }
    return Transfer(**{**fields, **changes})
