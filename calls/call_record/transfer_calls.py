"""The transfers of a call as JSON: `transferCalls` of the API and of the webhook."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from config.clock import iso
from config.signed_links import recording_path
from storage.calls import calls, transfers
from storage.calls.calls import Call, Status, seconds_between
from storage.calls.transfers import Transfer, TransferStatus

STATUS_WITHOUT_CHILD: Final[dict[TransferStatus, Status]] = {
    "initiated": "queued",
    "ringing": "ringing",
    "briefing": "in_progress",
    "connected": "in_progress",
    "completed": "completed",
    "declined": "failed",
    "no_answer": "no_answer",
    "busy": "failed",
    "voicemail": "completed",
    "cancelled": "no_answer",
    "failed": "failed",
}
"""The call status of a transfer without a child call, such as a REFER: the one that a child call would have."""


def transfer_calls_json(conn: sa.Connection, call_id: str, link: Callable[[str], str]) -> list[dict[str, Any]]:
    """The transfers of a call, newest last. `link` returns the absolute, signed URL of a path."""
    of_call = transfers.of_call(conn, call_id)
    children = {child.id: child for child in calls.transfers_of(conn, call_id)} if of_call else {}
    return [transfer_call_json(each, children.get(each.id), link) for each in of_call]


def transfer_call_json(transfer: Transfer, child: Call | None, link: Callable[[str], str]) -> dict[str, Any]:
    """One transfer, with its child call if there is one. `cost` is absent where it is not billed."""
    record = _without_child(transfer) if child is None else _of_child(child, link)
    return {
        **record,
        "id": transfer.id,
        "transferType": transfer.mode,
        "transferStatus": transfer.status,
        "customerNumber": transfer.number,
        "targetName": transfer.target_name,
        "reason": transfer.reason,
        "summary": transfer.summary,
        "requestedBy": transfer.requested_by,
        "createdAt": iso(transfer.created_at),
        "answeredAt": _iso(transfer.answered_at),
        "connectedAt": _iso(transfer.connected_at),
        "sipStatus": transfer.sip_status,
        "declineReason": transfer.decline_reason,
        "attempts": transfer.attempts,
        "states": transfer.states,
    }


def _of_child(child: Call, link: Callable[[str], str]) -> dict[str, Any]:
    return {
        "durationSeconds": child.duration_seconds,
        "recordingUrl": link(recording_path(child.id)) if child.recorded else None,
        "transcript": [{name: value for name, value in item.items() if name != "words"} for item in child.transcript],
        "startedAt": _iso(child.started_at),
        "endedAt": _iso(child.ended_at),
        **({} if child.cost is None else {"cost": child.cost}),
        "status": child.status,
    }


def _without_child(transfer: Transfer) -> dict[str, Any]:
    ended_at = transfer.ended_at
    return {
        "durationSeconds": None if ended_at is None else seconds_between(transfer.answered_at, ended_at),
        "recordingUrl": None,
        "transcript": [],
        "startedAt": _iso(transfer.answered_at),
        "endedAt": _iso(ended_at),
        "status": STATUS_WITHOUT_CHILD[transfer.status],
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else iso(at)
