"""The `call.completed` webhook payload of an ended call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calls.post_call.analysis import null_values
from config.clock import iso
from config.signed_links import recording_path, transcript_path
from storage.agents.agents import Agent
from storage.calls.calls import Call


def call_completed_payload(
    call: Call, agent: Agent | None, transfer_calls: Sequence[Mapping[str, Any]], link: Callable[[str], str]
) -> bytes:
    """Returns UTF-8 JSON. `link` returns the absolute, signed URL of a path. `transfer_calls` are the call's transfers
    as JSON. `extractedData` has every value that the agent extracts, null if it is not known."""
    payload = {
        "event": "call.completed",
        "callId": call.id,
        "organizationId": call.organization_id,
        "agentId": call.agent_id,
        "agentVersion": call.agent_version,
        "phoneNumberId": call.phone_number_id,
        "direction": call.direction,
        "status": call.status,
        "customerNumber": call.customer_number,
        "durationSeconds": call.duration_seconds or 0,
        "startedAt": None if call.started_at is None else iso(call.started_at),
        "endedAt": None if call.ended_at is None else iso(call.ended_at),
        "recordingUrl": link(recording_path(call.id)) if call.recorded else None,
        "transcriptUrl": link(transcript_path(call.id)) if call.transcript else None,
        "summary": call.analysis["summary"] if call.analysis else None,
        "extractedData": call.analysis["extractions"] if call.analysis else null_values(agent) if agent else {},
        "contextVariables": call.context_variables,
        "metadata": call.metadata,
        "parentCallId": call.parent_call_id,
        "transferType": call.transfer_type,
        "transferStatus": call.transfer_status,
        "transferCalls": list(transfer_calls),
        "calledNumber": call.called_number,
        **({"test": True} if call.test else {}),
    }
    # A lone surrogate cannot be encoded, and must not keep a call from ending.
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
